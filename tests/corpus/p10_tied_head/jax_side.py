"""A block between an embedding and a head of its own."""

import jax
import optax
from flax import nnx


class Model(nnx.Module):
    """Embedding, one MLP block, head."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(13, 16, rngs=rngs)
        self.up, self.down = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 16, rngs=rngs)
        self.head = nnx.Linear(16, 13, use_bias=False, rngs=rngs)

    def __call__(self, tokens_BT: jax.Array) -> jax.Array:
        """Logits (B, T, 13)."""
        x_BTC = self.embed(tokens_BT)
        return self.head(x_BTC + self.down(jax.nn.relu(self.up(x_BTC))))


def build() -> nnx.Module:
    """The model."""
    return Model(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of cross-entropies, and their number."""
    losses_BT = optax.softmax_cross_entropy_with_integer_labels(model(batch["tokens"]), batch["labels"])
    return losses_BT.sum(), losses_BT.size
