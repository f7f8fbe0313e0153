"""Do the learning rates that a side's own loop logs belong to the steps that it logs them for?

A log that is one step off reads like a schedule that is, and nothing of the training differs. Must not:
decide; rates that are applied are judged to the bit in `curves`.
"""

import math
from collections.abc import Callable, Iterator

from parity.judge.align import Measured
from spec.own_optimizer import OwnOptimizer

_REL = 1e-6
"""A rate in float32, or computed in another order."""


def skews(*sides: Measured) -> Iterator[str]:
    """One line for each side whose log differs from the rates of its updates."""
    for side in sides:
        problem = side.job.spec.problem
        told = {side.curve.first_step + i: lr for i, lr in enumerate(side.curve.logged_lr) if lr is not None}
        # An own optimizer does not tell the rates that it applies.
        if told and not isinstance(problem.optimizer, OwnOptimizer):
            yield from _skew(side.label, told, problem.schedule.learning_rate)


def _skew(label: str, told: dict[int, float], applied: Callable[[int], float]) -> Iterator[str]:
    apart = [step for step, lr in told.items() if not _same(lr, applied(step))]
    if not apart:
        return
    step = apart[0]
    for shift, words in ((1, "after"), (-1, "before")):
        if all(_same(lr, applied(max(0, other + shift))) for other, lr in told.items()):
            example = _example(told, applied, step)
            yield (
                f"LOG-SKEW: {label} logs the learning rate of the step {words} ({example}): "
                "only the log differs, not the training"
            )
            return
    yield (
        f"LOG-SKEW: {label} logs other learning rates than are applied, "
        f"at {len(apart)} of {len(told)} steps: {_example(told, applied, step)}"
    )


def _example(told: dict[int, float], applied: Callable[[int], float], step: int) -> str:
    return f"{told[step]:g} at step {step}, where {applied(step):g} is applied"


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_REL)
