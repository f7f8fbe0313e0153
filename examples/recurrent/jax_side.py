"""The recurrent network in JAX, flax linen: its cell has a kernel of its own for each gate."""

import jax
import jax.numpy as jnp
from flax import linen as nn


class Reader(nn.Module):
    """The cell, and an affine layer on its last state."""

    @nn.compact
    def __call__(self, x_BTI: jax.Array) -> jax.Array:
        """(B, T, I) -> (B, 1)."""
        states_BTH = nn.RNN(nn.OptimizedLSTMCell(16), name="cell")(x_BTI)
        return nn.Dense(1, name="out")(states_BTH[:, -1])


def build() -> nn.Module:
    """The module; its variables are made when it first sees a batch."""
    return Reader()


def loss(model: nn.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number. A linen module is called like an nnx one."""
    error_B1 = model(batch["x"]) - batch["y"]
    return jnp.sum(error_B1 * error_B1), error_B1.size
