"""The original in flax, whose default padding is "SAME"."""

import jax
import optax
from flax import nnx


class Net(nnx.Module):
    """Two convolutions, the first with stride 2, and a head."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv0 = nnx.Conv(3, 8, (3, 3), strides=2, rngs=rngs)
        self.conv1 = nnx.Conv(8, 8, (3, 3), rngs=rngs)
        self.head = nnx.Linear(8, 10, rngs=rngs)

    def __call__(self, images_BHWC: jax.Array) -> jax.Array:
        """(B, H, W, 3) -> logits (B, 10)."""
        x_BHWC = jax.nn.relu(self.conv0(images_BHWC))
        x_BHWC = jax.nn.relu(self.conv1(x_BHWC))
        return self.head(x_BHWC.mean((1, 2)))


def build() -> nnx.Module:
    """The model."""
    return Net(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of cross-entropies, and their number."""
    losses_B = optax.softmax_cross_entropy_with_integer_labels(model(batch["images"]), batch["labels"])
    return losses_B.sum(), len(losses_B)
