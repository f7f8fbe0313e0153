"""flax's layers, where what they leave to bfloat16 would not be the precision table's.

A gradient that adds up many rows has the dtype of what was broadcast or gathered: a bias read by 500 rows in
bfloat16 was 3 % off, and it grows with the rows. So such values are read in at least float32. Results stay as
they were: an operation on bfloat16 gives the rounded result of exact inputs. Must not: hold a constant of a
model. PyTorch's own layers need it on CPUs alone; see `torch_impl/models/gpt.py`.

Legend: B rows, T positions, I inputs, O outputs, V vocabulary, C width.
"""

import jax
import jax.numpy as jnp
from flax import nnx


def at_least_float32(values: jax.Array) -> jax.Array:
    """The same values in float32, or in their own dtype where that is wider."""
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


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
