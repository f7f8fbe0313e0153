"""clip_by_global_norm divides by the norm."""

import optax

from tests.corpus.norm_mlp_jax import build, loss

__all__ = ["build", "loss", "optimizer"]


def optimizer() -> optax.GradientTransformation:
    """Clipped SGD."""
    return optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.01))
