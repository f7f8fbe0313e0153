"""Floors: how far rounding alone moves each tensor, from the reruns of a lockstep pass.

A rerun starts from parameters moved by one rounding and takes its rows in another order. What that does to a
tensor is its floor phi, as an RMS and at the worst element, in units of the tensor's own scale. Must not:
decide; `rule` does.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

_NOTHING = 1e-300


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What rounding does to one tensor, relative to its scale s."""

    rms: float
    worst: float
    """At single elements, relative to max(|T|, s)."""
    ratio: float
    """How far the mean ratio of a rerun to the truth is from 1, as an RMS."""
    reruns: int
    """0 where none were made: then it is the smallest possible, u and u' sqrt(n)."""


def smallest(compute_u: float, sum_u: float, terms: int) -> float:
    """max(u, u' sqrt(n)): one rounding of the result, and n roundings of a sum that wander at random.

    Args:
      compute_u, sum_u: unit roundoff of results, and of what sums are kept in.
      terms: n, length of the longest sum.
    """
    return max(compute_u, sum_u * math.sqrt(terms))


def floor(clean: np.ndarray, reruns: Iterable[np.ndarray], s: float, least: float) -> Floor:
    """The floor of one tensor, at least `least`.

    Args:
      clean: its values without noise, in float64.
      reruns: its values in each rerun.
      s: its scale.
    """
    s, squares, worst, ratios, count = max(s, _NOTHING), [], 0.0, [], 0
    size = np.maximum(np.abs(clean), s)
    power = float(np.vdot(clean, clean))
    for array in reruns:
        count += 1
        with np.errstate(invalid="ignore"):
            distance = np.abs(array - clean)
        if not np.isfinite(distance).all():
            continue
        squares.append(float(np.mean(np.square(distance))))
        worst = max(worst, float((distance / size).max()))
        ratios.append(float(np.vdot(array, clean)) / power - 1 if power else 0.0)
    rms = math.sqrt(float(np.mean(squares))) / s if squares else 0.0
    ratio = math.sqrt(float(np.mean(np.square(ratios)))) if ratios else 0.0
    return Floor(
        rms=max(rms, least),
        worst=max(worst, least),
        ratio=max(ratio, least / math.sqrt(clean.size) if clean.size else least),
        reruns=count,
    )
