"""Floors: how far rounding alone moves each tensor, from the reruns of a lockstep pass.

A rerun starts from parameters moved by one rounding and takes its rows in another order. What that does to a
tensor is its floor phi, as an RMS and at the worst element, in units of the tensor's own scale. Must not:
decide; `rule` does.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from parity.judge.likeness import factor
from parity.judge.measures import rms as rms_of

_NOTHING = 1e-300
_GROUP_SHARE = 1e-6
"""A tensor much smaller than its group is measured against the group: its own scale may be rounding alone."""
KIN = 32.0
"""Two right sides that sum in another order were seen with floors 18 times apart, on the gradients of norms.
Values that pass through TF32 or bfloat16 in float32 code come out 500 times noisier, or more."""


@dataclass(frozen=True, kw_only=True)
class Least:
    """What a floor is at least, however quiet the reruns are."""

    whole: float
    """max(u, u' sqrt(n)): one rounding of the result, and n roundings of a sum that wander at random."""
    factor: float
    """u': one rounding of a number that all elements were multiplied with."""
    stored: float
    """Unit roundoff of what parameters are stored in."""

    def of_nothing(self, whole: float) -> "Least":
        """For a tensor whose truth is zero: what is seen there is rounding, of any size up to `whole`."""
        return replace(self, whole=max(self.whole, whole))


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What rounding does to one tensor, relative to its scale s."""

    rms: float
    worst: float
    """At single elements, relative to max(|T|, s)."""
    factor: float
    """How far the factor that carries the steps without noise onto a rerun is from 1, as an RMS."""
    reruns: int
    """0 where none were made: then it is the least."""
    reach: tuple[float, float] = (0.0, 0.0)
    """Of an update: how much larger the parameters are than s, as an RMS and at the worst element. Storing
    them rounds by that, in roundoffs."""


def measured_against(
    own: float, group: float, phase: str, compute_u: float, smallest: Least
) -> tuple[float, Least]:
    """(s, least floor) of a tensor of that RMS, in a phase of RMS `group`."""
    share = _GROUP_SHARE * group
    if own < share:
        # Adam turns rounding into a step of full length; everything else keeps to roundings of its group.
        smallest = smallest.of_nothing((1 if phase == "param" else compute_u) / _GROUP_SHARE)
    return max(own, share), smallest


def larger(floors: tuple[Floor, Floor]) -> Floor:
    """The floor of the side that rounds more."""
    return max(floors, key=lambda one: one.rms)


def within(own: Floor, other: Floor) -> Floor:
    """A side's own floor, at most `KIN` times the other side's: what rounds far more must not hide behind the
    noise of its own reruns."""
    return replace(
        own,
        rms=min(own.rms, KIN * other.rms),
        worst=min(own.worst, KIN * other.worst),
        factor=min(own.factor, KIN * other.factor),
    )


def raised(phi: Floor, roundoff: float) -> Floor:
    """A floor where values are cast to a dtype of that unit roundoff.

    Rounding elsewhere may carry any element over to the next number of that dtype, which few reruns show.
    """
    return replace(
        phi,
        rms=max(phi.rms, roundoff),
        worst=max(phi.worst, roundoff),
        factor=max(phi.factor, roundoff),
    )


def carrying(phi: Floor, apart: np.ndarray, s: float) -> Floor:
    """A floor of an update that an optimizer has carried so far by rounding."""
    return replace(
        phi,
        rms=max(phi.rms, rms_of(apart) / max(s, _NOTHING)),
        worst=max(phi.worst, float(apart.max(initial=0.0)) / max(s, _NOTHING)),
    )


def least(compute_u: float, sum_u: float, stored_u: float, terms: int) -> Least:
    """The least floor of a step.

    Args:
      compute_u, sum_u, stored_u: unit roundoff of results, of what sums are kept in, of stored parameters.
      terms: n, length of the longest sum.
    """
    return Least(whole=max(compute_u, sum_u * math.sqrt(terms)), factor=sum_u, stored=stored_u)


def floor(
    clean: np.ndarray,
    reruns: Iterable[np.ndarray],
    s: float,
    smallest: Least,
    parameter: np.ndarray | None = None,
) -> Floor:
    """The floor of one tensor.

    Args:
      clean: its values without noise, in float64.
      reruns: its values in each rerun.
      s: its scale.
      parameter: of an update, the parameter that it is added to.
    """
    s = max(s, _NOTHING)
    size = np.maximum(np.abs(clean), s)
    squares, worsts, factors = [0.0], [0.0], [0.0]
    made = 0
    for array in reruns:
        made += 1
        with np.errstate(invalid="ignore"):
            distance = np.abs(array - clean)
        if np.isfinite(distance).all():
            squares.append(float(np.mean(np.square(distance))))
            worsts.append(float((distance / size).max()))
            factors.append(factor(array, clean, s))
    reach = (0.0, 0.0)
    if parameter is not None:
        reach = (rms_of(parameter) / s, float((np.abs(parameter) / size).max()))
    whole = max(_mean_root(squares) / s, smallest.whole, smallest.stored * reach[0])
    return Floor(
        rms=whole,
        worst=max(*worsts, smallest.whole, smallest.stored * reach[1]),
        factor=max(_mean_root(np.square(factors)), smallest.factor, whole / math.sqrt(max(1, clean.size))),
        reruns=made,
        reach=reach,
    )


def _mean_root(squares: Iterable[float]) -> float:
    """Root of the mean of squares whose first is a zero that stands for none."""
    found = list(squares)[1:]
    return math.sqrt(float(np.mean(found))) if found else 0.0
