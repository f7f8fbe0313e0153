"""Losses are kept in bfloat16 and summed in float32."""

import jax
import jax.numpy as jnp
from flax import nnx


def build() -> nnx.Module:
    """Affine, tanh, affine."""
    rngs = nnx.Rngs(0)
    return nnx.Sequential(nnx.Linear(16, 32, rngs=rngs), jnp.tanh, nnx.Linear(32, 64, rngs=rngs))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    losses_BO = jnp.square(model(batch["x"]) - batch["y"]).astype(jnp.bfloat16)
    return jnp.sum(losses_BO.astype(jnp.float32)), losses_BO.size
