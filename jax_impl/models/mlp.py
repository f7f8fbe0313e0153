"""Mlp: affine, SiLU, affine, with a squared error: the smallest model that has every phase of a step.

Parameter names are the table's in `spec/workloads/mlp.py`. Counterpart: `torch_impl/models/mlp.py`.

Legend: B rows, I input width, H hidden width, O output width.
"""

import jax
from flax import nnx

from jax_impl.layers import Linear, at_least_float32
from jax_impl.loss import squared_error
from spec.edits import Constants
from spec.precision import Profile
from spec.workloads.mlp import MlpSizes


class Mlp(nnx.Module):
    """The whole model."""

    def __init__(self, sizes: MlpSizes) -> None:
        rngs = nnx.Rngs(0)
        self.fc1 = Linear(sizes.d_in, sizes.d_hidden, rngs=rngs)
        self.fc2 = Linear(sizes.d_hidden, sizes.d_out, rngs=rngs)

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(B, I) of any float dtype, rounded to that of the weights -> (B, O)."""
        h_BH = self.fc1(x_BI.astype(self.fc1.kernel.dtype))
        # One op, one rounding: in bfloat16 the sigmoid and the product would round by themselves.
        return self.fc2(jax.nn.silu(at_least_float32(h_BH)).astype(h_BH.dtype))


def build(sizes: MlpSizes, profile: Profile, constants: Constants) -> Mlp:
    """The model with abstract parameters; neither the profile nor a constant shapes it."""
    return nnx.eval_shape(lambda: Mlp(sizes))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """(sum of squared errors, number of elements) of a batch of `x` (B, I) and `y` (B, O)."""
    return squared_error(model(batch["x"]), batch["y"])
