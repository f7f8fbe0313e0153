"""One product of 512 terms."""

import jax
import jax.numpy as jnp
from flax import nnx


class Model(nnx.Module):
    """Affine, affine."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up = nnx.Linear(512, 64, rngs=rngs)
        self.down = nnx.Linear(64, 16, rngs=rngs)

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(B, 512) -> (B, 16)."""
        return self.down(self.up(x_BI)).astype(jnp.float32)


def build() -> nnx.Module:
    """The model."""
    return Model(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    return jnp.sum((model(batch["x"]) - batch["y"]) ** 2), batch["y"].size
