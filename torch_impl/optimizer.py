"""Global norm, clip coefficient and AdamW as pure functions of tensors.

They act on one tensor of any shape; the step gives them flat slices. Must not: read a constant from elsewhere
than their arguments, or bring a value to the host. Counterpart: `jax_impl/optimizer.py`.
"""

import torch
from torch import Tensor

from spec.edits import Constants
from spec.edits.step import BEFORE_CORRECTION, DECOUPLED, INSIDE_ROOT, L2, WITHOUT_LR


def global_norm(grads: Tensor) -> Tensor:
    """The 2-norm of all gradients in their own dtype, 0-dim.

    Written as a sum because torch's sum is pairwise: on a CPU `torch.linalg.vector_norm` adds float32 in one
    sequence, and is off by 1e-5 at a million elements.
    """
    return (grads * grads).sum().sqrt()


def clip_coefficient(norm: Tensor, max_norm: float | None, eps: float) -> Tensor:
    """min(1, max_norm / (norm + eps)), 0-dim; 1 where max_norm is None. A norm of 0 gives 1."""
    if max_norm is None:
        return torch.ones_like(norm)
    # A number divided by a tensor would be a reciprocal and a product, rounded twice.
    return (torch.full_like(norm, max_norm) / (norm + eps)).clamp(max=1.0)


def clip_part(grads: list[Tensor], count: Tensor, max_norm: float | None, eps: float) -> list[Tensor]:
    """Gradient sums of one micro-batch, scaled as its mean over `count` is clipped."""
    norm = global_norm(torch.cat([grad.reshape(-1) for grad in grads])) / count
    clip = clip_coefficient(norm, max_norm, eps)
    return [grad * clip for grad in grads]


def adamw(
    param: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    lr: Tensor,
    correction1: Tensor,
    correction2: Tensor,
    constants: Constants,
    decayed: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """One AdamW update with decoupled decay: (param, m, v) afterwards; elementwise.

    The decay is added to the update rather than multiplied into the parameter: `param * (1 - lr * decay)`
    rounds the factor to float32 and drifts by that rounding every step.

    Args:
      lr, correction1, correction2: 0-dim; the corrections are 1 - beta**t.
      decayed: whether the weight decay reaches these parameters.
    """
    decayed = decayed or constants.decay_all
    if decayed and constants.decay_form == L2:
        grad = grad + constants.weight_decay * param
    m = constants.beta1 * m + (1 - constants.beta1) * grad
    v = constants.beta2 * v + (1 - constants.beta2) * (grad * grad)
    update = (m / correction1) / _denominator(v, correction2, constants)
    if decayed and constants.decay_form == DECOUPLED:
        update = update + constants.weight_decay * param
    after = param - lr * update
    if decayed and constants.decay_form == WITHOUT_LR:
        after = after - constants.weight_decay * param
    return after, m, v


def _denominator(v: Tensor, correction2: Tensor, constants: Constants) -> Tensor:
    eps, place = constants.adam_eps, constants.adam_eps_place
    if place == BEFORE_CORRECTION:
        return (v.sqrt() + eps) / correction2.sqrt()
    if place == INSIDE_ROOT:
        return (v / correction2 + eps).sqrt()
    return (v / correction2).sqrt() + eps
