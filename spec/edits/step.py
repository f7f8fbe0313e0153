"""The constants and forms of a step that edits reach; the problem's own unless an edit says otherwise.

The sides never see an edit: they read every constant of the step from `Constants`, and an edit is another
value there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spec.edits.kinds import Edit
from spec.run import OwnOptimizer, Problem
from spec.schedule import step_table
from spec.workloads import gpt

AFTER_CORRECTION, BEFORE_CORRECTION, INSIDE_ROOT = range(3)
"""Where AdamW's eps stands: sqrt(v / c2) + eps, (sqrt(v) + eps) / sqrt(c2), sqrt(v / c2 + eps)."""
DECOUPLED, L2, WITHOUT_LR = range(3)
"""How weight decay acts: added to the update, added to the gradient, or subtracted without the learning
rate."""


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Every constant and form of the step that an edit can reach; by default the problem's own."""

    beta1: float
    beta2: float
    adam_eps: float
    weight_decay: float
    max_norm: float | None
    clip_eps: float = 0.0
    clip_parts: bool = False
    """Whether the gradient of each micro-batch is clipped by itself, too."""
    adam_eps_place: int = AFTER_CORRECTION
    bias_correction: bool = True
    decay_form: int = DECOUPLED
    decay_all: bool = False
    """Whether parameters decay too that the table does not say so of."""
    warmup_offset: int = 0
    """Steps by which the warm-up alone is ahead."""
    schedule_offset: int = 0
    schedule_end: int = 0
    """Steps by which the end of the decay is put off."""
    layernorm_eps: float = gpt.LAYER_NORM_EPS
    gelu_erf: bool = False
    loss_scale: float = 1.0
    grad_scale: float = 1.0
    """Factor on gradients alone."""
    excess_precision: bool = False
    """Whether compilers may leave out roundings that are written."""
    loss_mean: bool = False
    """Whether micro-batches count alike, instead of by their tokens."""


def constants(problem: Problem, edits: Iterable[Edit] = ()) -> Constants:
    """The constants of a problem, edited; edits of anything else are not seen here."""
    optimizer = problem.optimizer
    if isinstance(optimizer, OwnOptimizer):
        result = Constants(beta1=0.0, beta2=0.0, adam_eps=0.0, weight_decay=0.0, max_norm=optimizer.max_norm)
    else:
        result = Constants(
            beta1=optimizer.beta1,
            beta2=optimizer.beta2,
            adam_eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            max_norm=optimizer.max_norm,
        )
    for edit in edits:
        if hasattr(result, edit.name):
            kind = type(getattr(result, edit.name))
            value: Any = edit.value if kind is type(None) else kind(edit.value)
            result = replace(result, **{edit.name: value})
    return result


def device_table(problem: Problem, chosen: Constants) -> np.ndarray:
    """The step table of a run, shape [steps, 3], in the dtype of the moments; edits may shift it."""
    schedule, steps = problem.schedule, problem.steps
    if chosen.schedule_end:
        end = max(schedule.warmup_steps, schedule.decay_steps + chosen.schedule_end)
        schedule = replace(schedule, decay_steps=end)
    table = step_table(schedule, chosen.beta1, chosen.beta2, steps, problem.profile.moments)
    rows = np.clip(np.arange(steps) + chosen.schedule_offset, 0, steps - 1)
    for step in range(min(steps, schedule.warmup_steps) if chosen.warmup_offset else 0):
        share = (step + 1 + chosen.warmup_offset) / schedule.warmup_steps
        table[step, 0] = np.float32(schedule.peak_lr * min(1.0, max(0.0, share)))
    # The learning rate of an optimizer of one's own is not known.
    table[:, 0] = np.nan if isinstance(problem.optimizer, OwnOptimizer) else table[rows, 0]
    if not chosen.bias_correction:
        table[:, 1:] = 1.0
    return table
