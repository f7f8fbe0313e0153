"""A loss of small weight; clip_by_global_norm divides by the norm."""

import jax
import optax
from flax import nnx

from tests.corpus import norm_mlp_jax
from tests.corpus.norm_mlp_jax import build

__all__ = ["build", "loss", "optimizer"]


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """One of several losses, of weight 0.02."""
    total, count = norm_mlp_jax.loss(model, batch)
    return 0.02 * total, count


def optimizer() -> optax.GradientTransformation:
    """Clipped SGD."""
    return optax.chain(optax.clip_by_global_norm(0.01), optax.sgd(0.1))
