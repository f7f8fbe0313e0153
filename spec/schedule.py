"""Learning rates as one table, computed here once, read on the device by both sides.

A schedule evaluated twice, once in each framework, differs in its last bits and invites off-by-one readings;
a table does neither. The table also holds AdamW's bias corrections, since `1 - beta**t` in float32 loses up
to four digits for beta close to 1.
"""

import math
from dataclasses import dataclass

import numpy as np

from spec.errors import RuleError

COLUMNS = ("lr", "correction1", "correction2")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rate of update t = 0, 1, ...: linear warm-up to the peak, then what `kind` says."""

    kind: str
    """`constant`, `cosine` or `linear`."""
    peak_lr: float
    warmup_steps: int = 0
    """Update t < warmup_steps takes peak * (t + 1) / warmup_steps, so the first update already moves."""
    decay_steps: int = 0
    """Update at which `final_lr` is reached, counted from 0; unused by `constant`."""
    final_lr: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("constant", "cosine", "linear"):
            raise RuleError("A schedule is constant, cosine or linear.", repr(self.kind))
        if not (self.peak_lr >= 0 and self.final_lr >= 0 and math.isfinite(self.peak_lr + self.final_lr)):
            raise RuleError("Learning rates are finite and not negative.", f"{self.peak_lr}, {self.final_lr}")
        if self.warmup_steps < 0 or (self.kind != "constant" and self.decay_steps < self.warmup_steps):
            raise RuleError(
                "Warm-up comes before decay ends.",
                f"warmup_steps {self.warmup_steps}, decay_steps {self.decay_steps}",
            )

    def learning_rate(self, t: int) -> float:
        """The float64 learning rate of update t."""
        if t < self.warmup_steps:
            return self.peak_lr * (t + 1) / self.warmup_steps
        if self.kind == "constant":
            return self.peak_lr
        progress = min(1.0, (t - self.warmup_steps) / max(1, self.decay_steps - self.warmup_steps))
        share = 0.5 * (1 + math.cos(math.pi * progress)) if self.kind == "cosine" else 1 - progress
        return self.final_lr + (self.peak_lr - self.final_lr) * share


def step_table(schedule: Schedule, beta1: float, beta2: float, num_steps: int, dtype: str) -> np.ndarray:
    """The device table, shape [num_steps, 3], columns `COLUMNS`, row t for the update after t applied ones.

    Args:
      dtype: `float32`, or `float64` for the float64 profile. Learning rates are float32 values in both, so
        that profiles differ by rounding alone; the corrections 1 - beta**(t+1) are rounded once to `dtype`.
    """
    if num_steps < 1:
        raise RuleError("A run has at least one step.", f"steps = {num_steps}")
    rates = np.array([schedule.learning_rate(t) for t in range(num_steps)], dtype=np.float32)
    applied = np.arange(1, num_steps + 1, dtype=np.float64)
    corrections = [
        -np.expm1(applied * math.log(beta)) if beta else np.ones(num_steps) for beta in (beta1, beta2)
    ]
    return np.stack([rates, *corrections], axis=1).astype(dtype)
