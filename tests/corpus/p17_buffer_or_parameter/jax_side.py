"""The output bias is a Param, so it is trained."""

import jax
import jax.numpy as jnp
from flax import nnx


class Model(nnx.Module):
    """Affine, tanh, affine, bias."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up = nnx.Linear(12, 32, rngs=rngs)
        self.down = nnx.Linear(32, 4, use_bias=False, rngs=rngs)
        self.final_bias = nnx.Param(jnp.zeros(4))

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(B, 12) -> (B, 4)."""
        return self.down(jnp.tanh(self.up(x_BI))) + self.final_bias


def build() -> nnx.Module:
    """The model."""
    return Model(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    return jnp.sum((model(batch["x"]) - batch["y"]) ** 2), batch["y"].size
