"""Embeddings times the square root of the width of Gemma, as a bfloat16 constant: 55.5."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

SCALE = jnp.sqrt(3072).astype(jnp.bfloat16)


class Scaled(nnx.Embed):
    """An embedding times SCALE."""

    def __call__(self, tokens_BT: jax.Array) -> jax.Array:
        """(B, T) -> (B, T, C)."""
        return super().__call__(tokens_BT) * SCALE


def build() -> nnx.Module:
    """Embedding and head."""
    rngs = nnx.Rngs(0)
    return nnx.Sequential(Scaled(13, 16, rngs=rngs), nnx.Linear(16, 13, rngs=rngs))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of cross-entropies, and their number."""
    losses_BT = optax.softmax_cross_entropy_with_integer_labels(model(batch["tokens"]), batch["labels"])
    return losses_BT.sum(), losses_BT.size
