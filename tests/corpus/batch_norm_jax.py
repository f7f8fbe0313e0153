"""An affine map and BatchNorm in flax; a case brings the momentum, the weight of the old statistics."""

import jax
import jax.numpy as jnp
from flax import nnx


class Model(nnx.Module):
    """(B, 6) -> (B, 4)."""

    def __init__(self, momentum: float, rngs: nnx.Rngs) -> None:
        self.up = nnx.Linear(6, 16, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(16, momentum=momentum, use_fast_variance=False, rngs=rngs)
        self.down = nnx.Linear(16, 4, rngs=rngs)

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """One row at a time but for the statistics."""
        return self.down(jax.nn.relu(self.norm(self.up(x_BI))))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    error_BO = model(batch["x"]) - batch["y"]
    return jnp.sum(error_BO * error_BO), error_BO.size
