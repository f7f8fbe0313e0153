"""Losses as a sum and a count, so that the division by the tokens of the global batch happens once, later.

Computed in at least float32, whatever the dtype of what comes in. Must not: divide. Counterpart:
`torch_impl/loss.py`.

Legend: B rows, T positions, V vocabulary, O output width.
"""

import jax
import jax.numpy as jnp

from jax_impl.layers import at_least_float32
from spec.workloads.gpt import IGNORE_LABEL


def cross_entropy(logits_BTV: jax.Array, labels_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sum of -log softmax at the labels, and how many labels are not IGNORE_LABEL (int32), both 0-dim.

    A label that is neither ignored nor a class makes the sum NaN, and so refuses the update: a program on a
    device cannot raise, and JAX would read another class without a word.
    """
    logits_BTV = at_least_float32(logits_BTV)
    counts_BT = labels_BT != IGNORE_LABEL
    is_class_BT = (labels_BT >= 0) & (labels_BT < logits_BTV.shape[-1])
    # Chosen by comparing, one number and zeros added up: to gather it, XLA would write all logits in float32
    # first, and its derivative would be a scatter.
    is_label_BTV = labels_BT[..., None] == jnp.arange(logits_BTV.shape[-1])
    chosen_BT = jnp.where(is_label_BTV, logits_BTV, 0).sum(axis=-1)
    chosen_BT = jnp.where(counts_BT & ~is_class_BT, jnp.nan, chosen_BT)
    losses_BT = jax.nn.logsumexp(logits_BTV, axis=-1) - chosen_BT
    return jnp.where(counts_BT, losses_BT, 0).sum(), counts_BT.sum(dtype=jnp.int32)


def squared_error(prediction_BO: jax.Array, target_BO: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sum of the squares of prediction - target, and the number of elements (int32), both 0-dim."""
    error_BO = at_least_float32(prediction_BO) - target_BO
    return (error_BO * error_BO).sum(), jnp.full((), target_BO.size, jnp.int32)
