"""The same head of attention in flax."""

import jax
import jax.numpy as jnp
from flax import nnx


class Attention(nnx.Module):
    """Queries, keys, values, output."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.query = nnx.Linear(16, 16, rngs=rngs)
        self.key = nnx.Linear(16, 16, rngs=rngs)
        self.value = nnx.Linear(16, 16, rngs=rngs)
        self.out = nnx.Linear(16, 16, rngs=rngs)

    def __call__(self, x_BTC: jax.Array) -> jax.Array:
        """(B, T, 16) -> (B, T, 16)."""
        scores_BTS = self.query(x_BTC) @ self.key(x_BTC).mT / 4
        return self.out(jax.nn.softmax(scores_BTS, -1) @ self.value(x_BTC))


def build() -> nnx.Module:
    """The layer."""
    return Attention(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    return jnp.sum((model(batch["x"]) - batch["y"]) ** 2), batch["y"].size
