"""In which way two arrays differ: by a factor, in direction, by how many last bits, and where most.

`measures` says how far apart they are and serves the table; here are the numbers that tell a cause from
another. All in float64. Must not: know a tolerance.
"""

import math
from dataclasses import dataclass

import numpy as np

from parity.judge.measures import not_finite, unravel

_NOTHING = 1e-300


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """Two arrays of one shape, b beside a; None where one of them alone is not finite somewhere."""

    rms: float | None
    """RMS of a - b."""
    largest: float | None
    """Largest |a - b| / max(|a|, |b|, s)."""
    ratio: float | None
    """The factor that brings b nearest to a: sum(a b) / sum(b b); None where b is zero."""
    cosine: float | None
    """Of the angle between the two; None where one of them is zero."""
    ulps: float | None
    """|a - b| at the worst element, in spacings of the profile's dtype there."""
    index: tuple[int, ...]
    """The worst element: of `largest`, or the first that is finite on one side only."""
    a: float
    b: float


def liken(a: np.ndarray, b: np.ndarray, s: float, roundoff: float) -> Likeness:
    """Compares two float64 arrays of one shape.

    Elements that are NaN, or the same infinity, on both sides agree and are left out.

    Args:
      s: the size that single elements are measured against where they are smaller than that.
      roundoff: unit roundoff of the dtype whose spacings `ulps` counts.
    """
    assert a.shape == b.shape, (a.shape, b.shape)
    finite_a, finite_b = np.isfinite(a), np.isfinite(b)
    if not (finite_a.all() and finite_b.all()):
        alike, odd = not_finite(a, b)
        if odd.any():
            index = unravel(int(odd.argmax()), a.shape)
            return Likeness(
                rms=None,
                largest=None,
                ratio=None,
                cosine=None,
                ulps=None,
                index=index,
                a=float(a[index]),
                b=float(b[index]),
            )
        a, b = np.where(alike, 0.0, a), np.where(alike, 0.0, b)
    distance = np.abs(a - b)
    relative = distance / np.maximum(np.maximum(np.abs(a), np.abs(b)), max(s, _NOTHING))
    index = unravel(int(relative.argmax()), a.shape) if a.size else ()
    square_a, square_b, product = (float(np.vdot(x, y)) for x, y in ((a, a), (b, b), (a, b)))
    # Of a mask's least numbers the squares are infinite, which is as far apart as can be said.
    with np.errstate(over="ignore"):
        square = float(np.mean(np.square(distance))) if a.size else 0.0
    return Likeness(
        rms=math.sqrt(square),
        largest=float(relative[index]) if a.size else 0.0,
        ratio=product / square_b if square_b else None,
        cosine=product / math.sqrt(square_a) / math.sqrt(square_b) if square_a and square_b else None,
        ulps=float(distance[index]) / spacing(a[index], b[index], roundoff) if a.size else 0.0,
        index=index,
        a=float(a[index]) if a.size else 0.0,
        b=float(b[index]) if a.size else 0.0,
    )


def factor(array: np.ndarray, truth: np.ndarray, s: float) -> float:
    """|k - 1| of the factor k that carries the truth onto an array, elements that are not finite left out.

    It sees what all elements share and averages what they do not. Where the truth is smaller than s, the
    factor is of s: a truth of zero has none of its own.
    """
    kept = np.isfinite(array) & np.isfinite(truth)
    array, truth = (array, truth) if kept.all() else (array[kept], truth[kept])
    power = max(float(np.vdot(truth, truth)), truth.size * s * s)
    return abs(float(np.vdot(array - truth, truth))) / power if power else 0.0


def spacing(a: float, b: float, roundoff: float) -> float:
    """Distance of neighbouring numbers at the larger of two, in a dtype of that unit roundoff."""
    size = max(abs(float(a)), abs(float(b)), _NOTHING)
    # Of the largest float64 the logarithm rounds up, and two to its power is no float any more.
    return 2 * roundoff * 2.0 ** (math.frexp(size)[1] - 1)
