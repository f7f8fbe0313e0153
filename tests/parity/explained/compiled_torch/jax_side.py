"""The MLP in flax."""

from tests.corpus.mlp_jax import build, loss

__all__ = ["build", "loss"]
