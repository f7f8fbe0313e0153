"""The toy MLP in JAX: flax nnx."""

import jax
import jax.numpy as jnp
from flax import nnx


class Mlp(nnx.Module):
    """Affine, SiLU, affine."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(16, 32, rngs=rngs)
        self.out = nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(B, 16) -> (B, 4)."""
        return self.out(jax.nn.silu(self.hidden(x_BI)))


def build() -> nnx.Module:
    """The model; its first values are replaced by torch's, as `pair.py` says."""
    return Mlp(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """(sum of the losses, how many they are) of some rows of a batch."""
    error = model(batch["x"]) - batch["y"]
    return jnp.sum(error * error), error.size
