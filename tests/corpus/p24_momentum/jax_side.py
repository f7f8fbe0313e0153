"""Momentum carried over as a number: in flax it is the weight of the old statistics."""

from flax import nnx

from tests.corpus.batch_norm_jax import Model, loss

__all__ = ["build", "loss"]


def build() -> nnx.Module:
    """The model."""
    return Model(0.1, nnx.Rngs(0))
