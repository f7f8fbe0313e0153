"""How far apart two right sides may be: a table by precision profile and quantity, a reason in every row.

The table serves until the floor of a run is measured by that run itself. A row is never loosened to let a
run pass; it changes with evidence from runs that are not reported. `benchmarks/results/tolerances/` holds
the raw figures of the calibration and the conditions they were measured under.
"""

from dataclasses import dataclass

COVERED_STEPS = 100
"""Steps of the longest calibration run. Beyond it a curve that leaves its band alone proves nothing: two
right sides part by rounding, faster and faster."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What one quantity may differ by."""

    rms: float
    """Bound of `rms_rel`; for a curve, of the relative difference at a step."""
    worst: float
    """Bound of `max_rel` at the worst element; equal to `rms` for a curve."""
    reason: str


def _curve(bound: float, reason: str) -> Tolerance:
    return Tolerance(rms=bound, worst=bound, reason=reason)


TABLE: dict[tuple[str, str], Tolerance] = {}


def find(precision: str, quantity: str) -> Tolerance:
    """The row of a profile and a quantity."""
    return TABLE[precision, quantity]
