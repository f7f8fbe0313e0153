"""The decay stands behind the learning rate, which does not reach it."""

import optax

from tests.corpus.norm_mlp_jax import build, loss

__all__ = ["build", "loss", "optimizer"]


def optimizer() -> optax.GradientTransformation:
    """Adam, then the decay."""
    return optax.chain(
        optax.scale_by_adam(),
        optax.scale_by_learning_rate(1e-3),
        optax.add_decayed_weights(-0.1),
    )
