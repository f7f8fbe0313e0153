"""Convolution, BatchNorm, ReLU, mean, affine in JAX, with flax's defaults."""

import jax
import jax.numpy as jnp
from flax import nnx


class Model(nnx.Module):
    """(B, 3, 8, 8) -> (B, 4)."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(3, 6, (3, 3), strides=2, padding="SAME", use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(6, use_fast_variance=False, rngs=rngs)
        self.head = nnx.Linear(6, 4, rngs=rngs)

    def __call__(self, image_BCHW: jax.Array) -> jax.Array:
        """One row an image."""
        x_BHWC = self.norm(self.conv(image_BCHW.transpose(0, 2, 3, 1)))
        return self.head(jax.nn.relu(x_BHWC).mean((1, 2)))


def build() -> nnx.Module:
    """The model; its first values are replaced by torch's."""
    return Model(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of squares, and how many."""
    error = model(batch["image"]) - batch["y"]
    return jnp.sum(error * error), error.size
