"""The MLP in flax; jax.nn.gelu is the tanh form by default."""

import jax
import jax.numpy as jnp
from flax import nnx


class Mlp(nnx.Module):
    """Affine, GELU, affine."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up = nnx.Linear(12, 48, rngs=rngs)
        self.down = nnx.Linear(48, 4, rngs=rngs)

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(B, 12) -> (B, 4)."""
        return self.down(jax.nn.gelu(self.up(x_BI)))


def build() -> nnx.Module:
    """The model."""
    return Mlp(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    return jnp.sum((model(batch["x"]) - batch["y"]) ** 2), batch["y"].size
