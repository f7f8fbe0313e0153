"""Losses as a sum and a count, so that the division by the tokens of the global batch happens once, later.

Computed in at least float32, whatever the dtype of what comes in. Must not: divide. Counterpart:
`torch_impl/loss.py`.

Legend: B rows, T positions, V vocabulary, O output width.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp

from jax_impl.layers import at_least_float32
from spec.workloads.gpt import IGNORE_LABEL

_Kept: TypeAlias = tuple[jax.Array, jax.Array, jax.Array]
"""Logits, labels, and the logarithm of the sum of exponentials, for the backward pass."""


def cross_entropy(logits_BTV: jax.Array, labels_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sum of -log softmax at the labels, and how many labels are not IGNORE_LABEL (int32), both 0-dim.

    A label that is neither ignored nor a class makes the sum NaN, and so refuses the update: a program on a
    device cannot raise, and JAX would read another class without a word.
    """
    counts_BT = labels_BT != IGNORE_LABEL
    losses_BT = jnp.where(counts_BT, _minus_log_softmax(logits_BTV, labels_BT), 0)
    return losses_BT.sum(), counts_BT.sum(dtype=jnp.int32)


@jax.custom_vjp
def _minus_log_softmax(logits_BTV: jax.Array, labels_BT: jax.Array) -> jax.Array:
    """(B, T) in at least float32; NaN where a label is no class.

    Its derivative is written out for what it keeps and reads: logits in their own dtype, where JAX's would
    keep them in float32, most of a small model's memory traffic; and no scatter.
    """
    return _with_log_norm(logits_BTV, labels_BT)[0]


def _with_log_norm(logits_BTV: jax.Array, labels_BT: jax.Array) -> tuple[jax.Array, _Kept]:
    log_norm_BT = jax.nn.logsumexp(at_least_float32(logits_BTV), axis=-1)
    is_class_BT = (labels_BT >= 0) & (labels_BT < logits_BTV.shape[-1])
    index_BT1 = jnp.where(is_class_BT, labels_BT, 0)[..., None]
    # Gathered before it is widened, for XLA would widen all.
    chosen_BT = at_least_float32(jnp.take_along_axis(logits_BTV, index_BT1, axis=-1)[..., 0])
    losses_BT = jnp.where(is_class_BT, log_norm_BT - chosen_BT, jnp.nan)
    return losses_BT, (logits_BTV, labels_BT, log_norm_BT)


def _derivative(kept: _Kept, cotangent_BT: jax.Array) -> tuple[jax.Array, None]:
    logits_BTV, labels_BT, log_norm_BT = kept
    is_label_BTV = labels_BT[..., None] == jnp.arange(logits_BTV.shape[-1])
    softmax_BTV = jnp.exp(at_least_float32(logits_BTV) - log_norm_BT[..., None])
    return (((softmax_BTV - is_label_BTV) * cotangent_BT[..., None]).astype(logits_BTV.dtype), None)


_minus_log_softmax.defvjp(_with_log_norm, _derivative)


def squared_error(prediction_BO: jax.Array, target_BO: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sum of the squares of prediction - target, and the number of elements (int32), both 0-dim."""
    error_BO = at_least_float32(prediction_BO) - target_BO
    return (error_BO * error_BO).sum(), jnp.full((), target_BO.size, jnp.int32)
