"""The momentum turned round as it must be; flax keeps the variance over n."""

from flax import nnx

from tests.corpus.batch_norm_jax import Model, loss

__all__ = ["build", "loss"]


def build() -> nnx.Module:
    """The model."""
    return Model(0.9, nnx.Rngs(0))
