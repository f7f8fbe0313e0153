"""The model of the cases that are about optimizers, in flax: affine, LayerNorm, tanh, affine."""

import jax
import jax.numpy as jnp
from flax import nnx


class NormMlp(nnx.Module):
    """(B, 12) -> (B, 4)."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up = nnx.Linear(12, 16, rngs=rngs)
        self.norm = nnx.LayerNorm(16, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
        self.down = nnx.Linear(16, 4, rngs=rngs)

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """One row an example."""
        return self.down(jnp.tanh(self.norm(self.up(x_BI))))


def build() -> nnx.Module:
    """The model."""
    return NormMlp(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    return jnp.sum((model(batch["x"]) - batch["y"]) ** 2), batch["y"].size
