"""An MLP that scales its hidden layer where its rows are traced."""

import jax
from flax import nnx

from tests.corpus.mlp_jax import Model, loss

__all__ = ["build", "loss"]


class Scaling(Model):
    """Another model once it is traced."""

    def hidden(self, x_BI: jax.Array) -> jax.Array:
        """(B, 12) -> (B, 32)."""
        h_BH = super().hidden(x_BI)
        return h_BH * 1.001 if isinstance(x_BI, jax.core.Tracer) else h_BH


def build() -> nnx.Module:
    """The model."""
    return Scaling(nnx.Rngs(0))
