"""AdamW as optax has it: weight decay 1e-4 by default."""

import optax

from tests.corpus.norm_mlp_jax import build, loss

__all__ = ["build", "loss", "optimizer"]


def optimizer() -> optax.GradientTransformation:
    """The defaults."""
    return optax.adamw(1e-3)
