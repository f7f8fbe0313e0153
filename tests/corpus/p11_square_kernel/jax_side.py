"""A square matrix between two that are not, in flax: (in, out)."""

import jax
import jax.numpy as jnp
from flax import nnx


class Model(nnx.Module):
    """Three affine maps."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.inp = nnx.Linear(12, 64, rngs=rngs)
        self.proj = nnx.Linear(64, 64, rngs=rngs)
        self.out = nnx.Linear(64, 4, rngs=rngs)

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(B, 12) -> (B, 4)."""
        return self.out(jnp.tanh(self.proj(jnp.tanh(self.inp(x_BI)))))


def build() -> nnx.Module:
    """The model."""
    return Model(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of squared errors, and their number."""
    error_BO = model(batch["x"]) - batch["y"]
    return jnp.sum(error_BO**2), error_BO.size
