"""Global norm, clip coefficient and AdamW as pure functions of arrays.

Written out rather than taken from optax, which computes the corrections in float32; `baselines.py` takes the
stock optimizer. Must not: read a constant from elsewhere than their arguments. Counterpart:
`torch_impl/optimizer.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jax_impl.memory import Arrays
from spec.edits import Constants
from spec.edits.step import BEFORE_CORRECTION, DECOUPLED, INSIDE_ROOT, L2, WITHOUT_LR


def global_norm(grads: Any) -> jax.Array:
    """The 2-norm of all gradients, a few flat arrays, in their own dtype, 0-dim."""
    return jnp.sqrt(sum(jnp.sum(grad * grad) for grad in jax.tree.leaves(grads)))


def clip_coefficient(norm: jax.Array, max_norm: float | None, eps: float) -> jax.Array:
    """min(1, max_norm / (norm + eps)), 0-dim; 1 where max_norm is None. A norm of 0 gives 1."""
    if max_norm is None:
        return jnp.ones_like(norm)
    return jnp.minimum(max_norm / (norm + eps), 1.0)


def clip_part(grads: Arrays, count: jax.Array, max_norm: float | None, eps: float) -> Arrays:
    """Gradient sums of one micro-batch, scaled as their mean over `count` is clipped."""
    clip = clip_coefficient(global_norm(grads) / count, max_norm, eps)
    return {name: grad * clip for name, grad in grads.items()}


def adamw(
    param: jax.Array,
    grad: jax.Array,
    m: jax.Array,
    v: jax.Array,
    lr: jax.Array,
    correction1: jax.Array,
    correction2: jax.Array,
    constants: Constants,
    decayed: jax.Array | bool,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One AdamW update with decoupled decay: (param, m, v) afterwards; elementwise.

    The decay is added to the update rather than multiplied into the parameter: `param * (1 - lr * decay)`
    rounds the factor to float32 and drifts by that rounding every step.

    Args:
      lr, correction1, correction2: 0-dim; the corrections are 1 - beta**t.
      decayed: whether the weight decay reaches these parameters, or each of their elements.
    """
    decayed = decayed | constants.decay_all
    if constants.decay_form == L2:
        grad = jnp.where(decayed, grad + constants.weight_decay * param, grad)
    m = constants.beta1 * m + (1 - constants.beta1) * grad
    v = constants.beta2 * v + (1 - constants.beta2) * (grad * grad)
    update = (m / correction1) / _denominator(v, correction2, constants)
    # A choice for each element, and not two pieces: only so does XLA write over the parameters it reads.
    if constants.decay_form == DECOUPLED:
        update = jnp.where(decayed, update + constants.weight_decay * param, update)
    after = param - lr * update
    if constants.decay_form == WITHOUT_LR:
        after = jnp.where(decayed, after - constants.weight_decay * param, after)
    return after, m, v


def _denominator(v: jax.Array, correction2: jax.Array, constants: Constants) -> jax.Array:
    eps, place = constants.adam_eps, constants.adam_eps_place
    if place == BEFORE_CORRECTION:
        return (jnp.sqrt(v) + eps) / jnp.sqrt(correction2)
    if place == INSIDE_ROOT:
        return jnp.sqrt(v / correction2 + eps)
    return jnp.sqrt(v / correction2) + eps
