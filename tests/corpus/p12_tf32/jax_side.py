"""A dense layer in float32 that asks for the device's default product: TF32 on a GPU that has it."""

import jax
import jax.numpy as jnp
from flax import nnx


class Model(nnx.Module):
    """Affine."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.dense = nnx.Linear(256, 16, precision="default", rngs=rngs)

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(B, 256) -> (B, 16)."""
        return self.dense(x_BI)


def build() -> nnx.Module:
    """The model."""
    return Model(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    return jnp.sum((model(batch["x"]) - batch["y"]) ** 2), batch["y"].size
