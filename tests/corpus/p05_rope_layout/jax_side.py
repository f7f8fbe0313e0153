"""The same weights in JAX, where rotary positions turn neighbours."""

import jax
import jax.numpy as jnp
from flax import nnx

from tests.corpus.rotary_jax import Attention, angles, loss

__all__ = ["build", "loss"]


def rotate(x_BHTD: jax.Array) -> jax.Array:
    """Neighbours are paired."""
    cos, sin = angles(x_BHTD, 10000.0, x_BHTD.shape[-1])
    a, b = x_BHTD[..., ::2], x_BHTD[..., 1::2]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x_BHTD.shape)


def build() -> nnx.Module:
    """The model."""
    return Attention(rotate, nnx.Rngs(0))
