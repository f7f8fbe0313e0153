"""The model in JAX. The mistake: jax.nn.gelu is the tanh form unless it is told `approximate=False`."""

import jax
import jax.numpy as jnp
from flax import nnx


class Model(nnx.Module):
    """Affine, GELU, LayerNorm, affine."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(12, 32, rngs=rngs)
        self.norm = nnx.LayerNorm(32, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
        self.out = nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(B, 12) -> (B, 4)."""
        return self.out(self.norm(jax.nn.gelu(self.hidden(x_BI))))


def build() -> nnx.Module:
    """The model; its first values are torch's."""
    return Model(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    error_BO = model(batch["x"]) - batch["y"]
    return jnp.sum(error_BO * error_BO), error_BO.size
