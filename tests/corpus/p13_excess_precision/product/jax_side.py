"""The same product; under jit XLA need not round it where it has leave."""

import jax
import jax.numpy as jnp
from flax import nnx


class Model(nnx.Module):
    """Affine, product in bfloat16, affine."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up = nnx.Linear(16, 32, rngs=rngs)
        self.mix = nnx.Linear(32, 24, use_bias=False, rngs=rngs)
        self.out = nnx.Linear(24, 4, rngs=rngs)

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(B, 16) -> (B, 4)."""
        h_BH = self.up(x_BI).astype(jnp.bfloat16) @ self.mix.kernel[...].astype(jnp.bfloat16)
        return self.out(h_BH.astype(jnp.float32))


def build() -> nnx.Module:
    """The model."""
    return Model(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    return jnp.sum((model(batch["x"]) - batch["y"]) ** 2), batch["y"].size
