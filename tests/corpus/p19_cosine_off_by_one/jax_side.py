"""The cosine of optax: count / steps."""

import optax

from tests.corpus.norm_mlp_jax import build, loss

__all__ = ["build", "loss", "optimizer"]


def optimizer() -> optax.GradientTransformation:
    """AdamW along the cosine."""
    return optax.adamw(
        optax.warmup_cosine_decay_schedule(0.0, 1e-3, warmup_steps=2, decay_steps=10), weight_decay=0.0
    )
