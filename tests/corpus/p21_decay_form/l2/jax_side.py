"""optax.adamw decays apart from the moments."""

import optax

from tests.corpus.norm_mlp_jax import build, loss

__all__ = ["build", "loss", "optimizer"]


def optimizer() -> optax.GradientTransformation:
    """AdamW."""
    return optax.adamw(1e-3, weight_decay=0.1)
