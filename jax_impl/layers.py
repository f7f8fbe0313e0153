"""flax's layers, where what they leave to bfloat16 would not be the precision table's, or to XLA is slow.

A gradient that adds up many rows has the dtype of what was broadcast or gathered: a bias read by 500 rows in
bfloat16 was 3 % off, and it grows with the rows. So such gradients are summed in at least float32. Results
stay as they were: an operation on bfloat16 gives the rounded result of exact inputs. Derivatives that are
written out say what the backward pass keeps, and so what XLA fuses: together they took a step of gpt2-124m on
an H200 from 33.8 to 32.2 ms (`benchmarks/results/jax_step`, run e). Must not: hold a constant of a model.
PyTorch's own layers need it on CPUs alone; see `torch_impl/models/gpt.py`.

Legend: B rows, T positions, I inputs, O outputs, V vocabulary, C width.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax


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


@jax.custom_vjp
def add_bias(product_BO: jax.Array, bias_O: jax.Array) -> jax.Array:
    """(..., O) and a bias of its dtype, whose gradient is summed over rows in at least float32."""
    # No wider: XLA then adds it before the product leaves the multiprocessor.
    return product_BO + bias_O


def _add_bias_forward(product_BO: jax.Array, bias_O: jax.Array) -> tuple[jax.Array, None]:
    return product_BO + bias_O, None


def _add_bias_backward(_: None, cotangent_BO: jax.Array) -> tuple[jax.Array, jax.Array]:
    return cotangent_BO, _over_rows(at_least_float32(cotangent_BO)).astype(cotangent_BO.dtype)


add_bias.defvjp(_add_bias_forward, _add_bias_backward)


class Linear(nnx.Linear):
    """An affine layer in the dtype of its parameters, whose bias gets its gradient summed in float32."""

    def __call__(self, x_BI: jax.Array) -> jax.Array:
        """(..., I) -> (..., O)."""
        assert self.bias is not None
        return add_bias(x_BI @ self.kernel[...], self.bias[...])


@jax.custom_vjp
def whole_cotangent(x_BC: jax.Array) -> jax.Array:
    """The same values; what comes back for them is put together once, for all who use it.

    XLA would concatenate the gradients of parts of `x_BC` anew in each product that reads them.
    """
    return x_BC


whole_cotangent.defvjp(
    lambda x_BC: (x_BC, None), lambda _, cotangent_BC: (lax.optimization_barrier(cotangent_BC),)
)


class LayerNorm(nnx.LayerNorm):
    """flax's with its variance about the mean, E[(x - E[x])^2]; statistics are of at least float32.

    The backward pass keeps the mean and the reciprocal deviation of each row. XLA would compute them again
    from the row for every use, of which the gradients of scale and bias are two.
    """

    def __call__(self, x_BC: jax.Array) -> jax.Array:
        """(..., C) -> (..., C)."""
        assert self.scale is not None and self.bias is not None and not self.use_fast_variance
        return _normalised(x_BC, self.scale[...], self.bias[...], self.epsilon)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _normalised(x_BC: jax.Array, scale_C: jax.Array, bias_C: jax.Array, epsilon: float) -> jax.Array:
    return _normalised_forward(x_BC, scale_C, bias_C, epsilon)[0]


def _normalised_forward(
    x_BC: jax.Array, scale_C: jax.Array, bias_C: jax.Array, epsilon: float
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """The result, rounded once, and what the backward pass keeps: x, scale, mean and 1 / deviation."""
    wide_BC = at_least_float32(x_BC)
    mean_B1 = wide_BC.mean(-1, keepdims=True)
    rstd_B1 = lax.rsqrt(jnp.square(wide_BC - mean_B1).mean(-1, keepdims=True) + epsilon)
    # In flax's order, which rounds alike.
    out_BC = (wide_BC - mean_B1) * (rstd_B1 * at_least_float32(scale_C)) + at_least_float32(bias_C)
    return out_BC.astype(x_BC.dtype), (x_BC, scale_C, mean_B1, rstd_B1)


def _normalised_backward(
    epsilon: float, kept: tuple[jax.Array, ...], cotangent_BC: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """With h = (x - mean) / deviation and s = scale * cotangent: (s - E[s] - h E[s h]) / deviation."""
    x_BC, scale_C, *statistics = kept
    # Behind the barrier XLA reads them, instead of computing them again.
    mean_B1, rstd_B1 = lax.optimization_barrier(tuple(statistics))
    wide_BC = at_least_float32(cotangent_BC)
    h_BC = (at_least_float32(x_BC) - mean_B1) * rstd_B1
    s_BC = wide_BC * at_least_float32(scale_C)
    along_h_B1 = (s_BC * h_BC).mean(-1, keepdims=True)
    x_grad_BC = rstd_B1 * (s_BC - s_BC.mean(-1, keepdims=True) - h_BC * along_h_B1)
    scale_grad_C, bias_grad_C = _over_rows(wide_BC * h_BC), _over_rows(wide_BC)
    return x_grad_BC.astype(x_BC.dtype), scale_grad_C.astype(scale_C.dtype), bias_grad_C.astype(scale_C.dtype)


_normalised.defvjp(_normalised_forward, _normalised_backward)


class Embed(nnx.Embed):
    """An embedding in the dtype of its parameters, whose rows get their gradients summed in float32.

    flax's would compute in the dtype that it was built with, whatever is put into it.
    """

    def __call__(self, tokens_BT: jax.Array) -> jax.Array:
        """(B, T) integers in [0, V) -> (B, T, C)."""
        embedding_VC = self.embedding[...]
        return at_least_float32(embedding_VC)[tokens_BT].astype(embedding_VC.dtype)


def _over_rows(values_BC: jax.Array) -> jax.Array:
    """(..., C) -> (C,), the sum over all that comes before."""
    return values_BC.sum(tuple(range(values_BC.ndim - 1)))
