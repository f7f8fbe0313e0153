"""Adam; its counter is data of the state."""

import optax

from tests.corpus.norm_mlp_jax import build, loss

__all__ = ["build", "loss", "optimizer"]


def optimizer() -> optax.GradientTransformation:
    """Adam."""
    return optax.adam(1e-3)
