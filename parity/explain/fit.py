"""An unknown constant, solved from what its values leave: a secant in one dimension, in float64.

Where the residual r of a tensor is nearly linear in x(value), two values give the third at which it vanishes.
How parallel the two residuals' difference is to the residual itself tells whether the constant is to blame at
all. Must not: know what the constant does.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from parity.explain.residuals import Key, Left

_MOST_STEPS = 7
_PARALLEL = 0.5
"""Below this cosine, no value of the constant takes much of the residual away."""

_TO_X: dict[str, Callable[[float], float]] = {"linear": float, "log": math.log, "exp": math.exp}
_FROM_X: dict[str, Callable[[float], float]] = {
    "linear": float,
    "log": math.exp,
    "exp": lambda x: math.log(x) if x > 0 else -1e9,
}


@dataclass(frozen=True)
class Point:
    """One value, and what it left."""

    value: float
    left: Left


def solve(
    points: list[Point], phase: str, scale: str, positive: bool, attempt: Callable[[float], Left]
) -> list[Point]:
    """All points that were tried, the given ones first.

    Args:
      points: two at least.
      phase: the earliest that differs; it alone is looked at.
      scale: in which the residual is nearly linear: `linear`, `log` or `exp`.
      positive: whether the constant must be.
      attempt: what a value leaves.
    """
    tried = list(points)
    for count in range(_MOST_STEPS):
        best, other = sorted(tried, key=lambda point: size(point.left, phase))[:2]
        if not size(best.left, phase) or (count > 2 and best not in tried[-2:]):
            break
        value = _secant(best, other, phase, scale)
        if value is None or not math.isfinite(value):
            break
        if positive and value <= 0:
            value = 0.0
        if any(abs(value - point.value) <= 1e-15 * abs(value) for point in tried):
            break
        tried.append(Point(value, attempt(value)))
    return tried


def rounded(value: float) -> float:
    """The number that somebody wrote: the shortest within a millionth of the solution."""
    for digits in range(1, 7):
        short = float(f"{value:.{digits - 1}e}")
        if abs(short - value) <= 1e-6 * abs(value):
            return short
    return float(f"{value:.9g}")


def size(left: Left, phase: str) -> float:
    """How much of a phase is left: the sum over what fails of it, each tensor in its own scale."""
    return sum(min(left.rms[key], 1e3) for key in left.failing if key.phase == phase)


def _secant(best: Point, other: Point, phase: str, scale: str) -> float | None:
    """The value at which the residual vanishes, by the tensor that it fits best."""
    to_x, from_x = _TO_X[scale], _FROM_X[scale]
    x, step = to_x(best.value), to_x(other.value) - to_x(best.value)
    if step == 0:
        return None
    keys = [key for key in best.left.failing if key.phase == phase]
    choices = [found for key in keys if (found := _one(best.left, other.left, key))]
    if not choices:
        return None
    cosine, share = max(choices)
    if cosine < _PARALLEL:
        return None
    try:
        return from_x(x + share * step)
    except (OverflowError, ValueError):
        return None


def _one(best: Left, other: Left, key: Key) -> tuple[float, float] | None:
    """(cosine, step in units of the one between the two points) for one tensor."""
    if key not in other.differences:
        return None
    r, change = best.differences[key].ravel(), (other.differences[key] - best.differences[key]).ravel()
    with np.errstate(invalid="ignore", over="ignore"):
        product, square, whole = float(r @ change), float(change @ change), float(r @ r)
    if not math.isfinite(square) or not square or not whole:
        return None
    # A hair's preference for tensors of many elements: one number is parallel to any other.
    return abs(product) / math.sqrt(square * whole) - 1e-6 / r.size, -product / square
