"""flax's layers, where what they leave to bfloat16 would not be the precision table's.

A gradient that adds up many rows has the dtype of what was broadcast or gathered: a bias read by 500 rows in
bfloat16 was 3 % off, and it grows with the rows. So such values are read in at least float32. Results stay as
they were: an operation on bfloat16 gives the rounded result of exact inputs. Must not: hold a constant of a
model. PyTorch's own layers need it on CPUs alone; see `torch_impl/models/gpt.py`.

Legend: B rows, T positions, I inputs, O outputs, V vocabulary, C width.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx


def at_least_float32(values: jax.Array) -> jax.Array:
    """The same values in float32, or in their own dtype where that is wider."""
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


@partial(jax.checkpoint, static_argnums=1)
def gelu(x_BC: jax.Array, approximate: bool) -> jax.Array:
    """GELU of (..., C), by erf or by tanh; the backward pass keeps nothing but its argument.

    Computed in at least float32 and rounded once: in bfloat16 each of ten operations would round by itself.
    By tanh it is x sigmoid(2 z), as (1 + tanh z) / 2 = sigmoid(2 z), which takes fewer operations and does
    not cancel where x is far below zero; 0.044715 is of https://arxiv.org/abs/1606.08415.
    """
    wide_BC = at_least_float32(x_BC)
    if approximate:
        twice_z_BC = math.sqrt(8 / math.pi) * (wide_BC + 0.044715 * wide_BC**3)
        return (wide_BC * jax.nn.sigmoid(twice_z_BC)).astype(x_BC.dtype)
    return jax.nn.gelu(wide_BC, approximate=False).astype(x_BC.dtype)


class Linear(nnx.Linear):
    """An affine layer in the dtype of its parameters, whose bias gets its gradient summed in float32."""

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(..., I) -> (..., O)."""
        assert self.bias is not None
        product_BO = x_BI @ self.kernel[...]
        return (at_least_float32(product_BO) + at_least_float32(self.bias[...])).astype(product_BO.dtype)


class Embed(nnx.Embed):
    """An embedding in the dtype of its parameters, whose rows get their gradients summed in float32.

    flax's would compute in the dtype that it was built with, whatever is put into it.
    """

    def __call__(self, tokens_BT: jax.Array) -> jax.Array:
        """(B, T) integers in [0, V) -> (B, T, C)."""
        embedding_VC = self.embedding[...]
        return at_least_float32(embedding_VC)[tokens_BT].astype(embedding_VC.dtype)
