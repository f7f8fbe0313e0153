"""A plain MLP in flax, for cases whose model is no matter."""

import jax
import jax.numpy as jnp
from flax import nnx


class Model(nnx.Module):
    """Affine, tanh, affine."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up = nnx.Linear(12, 32, rngs=rngs)
        self.down = nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(B, 12) -> (B, 4)."""
        return self.down(self.hidden(x_BI))

    def hidden(self, x_BI: jax.Array) -> jax.Array:
        """(B, 12) -> (B, 32)."""
        return jnp.tanh(self.up(x_BI))


def build() -> nnx.Module:
    """The model."""
    return Model(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    error_BO = model(batch["x"]) - batch["y"]
    return jnp.sum(error_BO * error_BO), error_BO.size
