"""The MLP in flax; the port left the dropout out."""

import jax
import jax.numpy as jnp
from flax import nnx


def build() -> nnx.Module:
    """Affine, tanh, affine."""
    rngs = nnx.Rngs(0)
    return nnx.Sequential(nnx.Linear(12, 32, rngs=rngs), jnp.tanh, nnx.Linear(32, 4, rngs=rngs))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    error_BO = model(batch["x"]) - batch["y"]
    return jnp.sum(error_BO * error_BO), error_BO.size
