"""An affine map in flax, in a program that switches 64 bits off when it is imported."""

import jax
import jax.numpy as jnp
from flax import nnx

jax.config.update("jax_enable_x64", False)


def build() -> nnx.Module:
    """The model."""
    return nnx.Linear(12, 4, rngs=nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of squared errors, and their number."""
    error_BO = model(batch["x"]) - batch["y"]
    return jnp.sum(error_BO**2), error_BO.size
