"""The MLP in flax; the derivative of jnp.maximum at a tie is a half."""

import jax
import jax.numpy as jnp
from flax import nnx


class Model(nnx.Module):
    """Affine, max(x, 0), affine."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up = nnx.Linear(12, 32, rngs=rngs)
        self.down = nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(B, 12) -> (B, 4)."""
        return self.down(jnp.maximum(self.up(x_BI), 0))


def build() -> nnx.Module:
    """The model."""
    return Model(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    return jnp.sum((model(batch["x"]) - batch["y"]) ** 2), batch["y"].size
