"""The port in JAX: the whole of each head is rotated."""

from functools import partial

from flax import nnx

from tests.corpus.rotary_jax import Attention, loss, rotate_halves

__all__ = ["build", "loss"]


def build() -> nnx.Module:
    """The model."""
    return Attention(partial(rotate_halves, theta=10000.0), nnx.Rngs(0))
