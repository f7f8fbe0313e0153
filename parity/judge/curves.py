"""One number a step: loss, gradient norm, learning rate; and the counts that must be equal."""

from collections.abc import Iterator

import numpy as np

from parity.judge.align import Measured
from parity.judge.evidence import Evidence
from parity.judge.tolerances import covered_steps, find
from parity.report.result import CurveDifference
from spec.own_optimizer import OwnOptimizer

CURVES = ("loss", "grad_norm", "lr")


def compare(a: Measured, b: Measured, quantity: str) -> tuple[CurveDifference | None, list[Evidence]]:
    """How far apart the curves of a quantity are, and where they first leave their tolerance.

    Returns:
      None and nothing where no step was written, and for the rates of optimizers of the users' own.
    """
    curve_a, curve_b = getattr(a.curve, quantity), getattr(b.curve, quantity)
    num_steps = min(len(curve_a), len(curve_b))
    # Optimizers of the users' own do not tell their rates.
    untold = quantity == "lr" and isinstance(a.job.spec.problem.optimizer, OwnOptimizer)
    if untold or not num_steps:
        return None, []
    curve_a, curve_b = curve_a[:num_steps], curve_b[:num_steps]
    relative = relative_difference(curve_a, curve_b)
    bounds = _bounds(a, quantity, num_steps)
    tolerance = find(a.job.spec.problem.precision, quantity)
    finite = bool(np.isfinite(relative).all())
    difference = CurveDifference(
        max_rel=float(relative.max()) if finite else None,
        at_step=a.curve.first_step + int(relative.argmax()),
        floor=None,
        tolerance=tolerance.rms,
        tolerance_source="table",
        tolerance_reason=tolerance.reason,
        first={a.label: repr(float(curve_a[0])), b.label: repr(float(curve_b[0]))},
        last={a.label: repr(float(curve_a[-1])), b.label: repr(float(curve_b[-1]))},
        first_step=a.curve.first_step,
        first_tolerance=float(bounds[0]) if bounds[0] != tolerance.rms else None,
    )
    return difference, [
        *_first_excess(a, b, quantity, relative, bounds),
        *_not_finite(a, quantity, curve_a, relative),
    ]


def relative_difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b| / max(|a|, |b|) a step; 0 where both are NaN, or equal; infinite where one is not finite."""
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.abs(a - b) / np.maximum(np.abs(a), np.abs(b))
    relative[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    relative[~np.isfinite(relative)] = np.inf
    return relative


def _bounds(a: Measured, quantity: str, num_steps: int) -> np.ndarray:
    """The tolerance of each step; a first step that starts from equal bits has its own."""
    precision = a.job.spec.problem.precision
    bounds = np.full(num_steps, find(precision, quantity).rms)
    if quantity != "lr" and a.from_equal_bits:
        bounds[0] = find(precision, f"first_{quantity}").rms
    return bounds


def _first_excess(
    a: Measured, b: Measured, quantity: str, relative: np.ndarray, bounds: np.ndarray
) -> Iterator[Evidence]:
    beyond = np.flatnonzero(relative > bounds)
    if not beyond.size:
        return
    index = int(beyond[0])
    step = a.curve.first_step + index
    one, other = (repr(float(getattr(side.curve, quantity)[index])) for side in (a, b))
    distance = float(relative[index])
    yield Evidence(
        step=step,
        phase=quantity,
        covered=step - a.origin < covered_steps(a.job.spec.problem.precision) or bounds[index] == 0,
        values={a.label: one, b.label: other},
        difference=distance if np.isfinite(distance) else None,
        tolerance=float(bounds[index]),
        message=f"{quantity} of step {step}: {a.label} {one}, {b.label} {other} "
        f"(rel {distance:.1e}, tol {bounds[index]:.1e})",
    )


def _not_finite(a: Measured, quantity: str, curve: np.ndarray, relative: np.ndarray) -> Iterator[Evidence]:
    """A remark where both sides are not finite in the same way."""
    odd = np.flatnonzero(~np.isfinite(curve) & (relative == 0))
    if odd.size:
        step = a.curve.first_step + int(odd[0])
        yield Evidence(
            step=step,
            phase=quantity,
            ok=True,
            message=f"{quantity} is {curve[odd[0]]} on both sides at step {step}"
            + (f" and {odd.size - 1} later steps" if odd.size > 1 else ""),
        )


def counts(a: Measured, b: Measured) -> Iterator[Evidence]:
    """The number of steps, their tokens and the skipped updates: equal, or different in meaning."""
    if a.curve.stop != b.curve.stop:
        one, other = a.curve.stop, b.curve.stop
        yield _unequal(a, b, min(one, other), "steps", one, other)
    for name in ("tokens", "skipped"):
        pairs = list(zip(getattr(a.curve, name), getattr(b.curve, name), strict=False))
        index = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
        if index is not None:
            yield _unequal(a, b, a.curve.first_step + index, name, *pairs[index])


def _unequal(a: Measured, b: Measured, step: int, name: str, one: int, other: int) -> Evidence:
    return Evidence(
        step=step,
        phase=name,
        class_="semantics",
        values={a.label: str(one), b.label: str(other)},
        message=f"{name} at step {step}: {a.label} {one}, {b.label} {other}",
    )
