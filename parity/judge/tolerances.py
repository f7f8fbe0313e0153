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


_QUANTITIES = {
    "first_loss": (2e-6, 2e-6),
    "first_grad_norm": (2e-6, 2e-6),
    "loss": (2e-6, 2e-6),
    "grad_norm": (2e-5, 2e-5),
    "lr": (0.0, 0.0),
    "grad": (1e-5, 1e-3),
    "clipped": (1e-5, 1e-3),
    "m": (1e-5, 1e-3),
    "v": (1e-5, 1e-3),
    "param": (1e-4, 1e-1),
    "buffer": (1e-5, 1e-3),
    "last_m": (1e-3, 1e-1),
    "last_v": (1e-3, 1e-1),
    "last_param": (1e-3, 1e-1),
    "last_buffer": (1e-3, 1e-1),
}
TABLE = {
    (precision, quantity): Tolerance(rms=rms * f, worst=worst * f, reason="provisional")
    for precision, f in (("f64", 1e-8), ("strict", 1.0), ("tf32", 1e3), ("bf16", 1e4))
    for quantity, (rms, worst) in _QUANTITIES.items()
}


def find(precision: str, quantity: str) -> Tolerance:
    """The row of a profile and a quantity."""
    return TABLE[precision, quantity]
