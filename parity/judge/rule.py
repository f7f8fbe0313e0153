"""The decision rule about one tensor of one lockstep step, its constants and their reasons.

T is the truth: the same step in float64. s = max(RMS of T, 1e-6 x RMS of its group); u is the unit roundoff
of the profile; phi the floor (`floors`).

1. Semantics: the two truths are equal where RMS / s <= 1e-12 and the worst element <= 1e-10, or where they
   lie within 64 phi u64 / u: phi tells how a tensor magnifies rounding, in float64 as in the profile. An
   update is cut off by the parameter that it is added to: 64 u64 |parameter| is allowed there. The phi of
   what AdamW makes of rounding is a full step, of any rounding, so it tells nothing of float64: where both
   truths of the mean gradient are zero by this rule, as much as AdamW can make of them is allowed in place of
   it, but for what 3. sees.
2. Precision: a side keeps its profile where it lies within `multiple` phi of its own truth, as an RMS, at its
   worst element and in its mean ratio: 8, and more where long sums are kept in the dtype of the results.
   Where a user's code casts, this truth keeps the casts, and those of the two sides may differ by as much:
   what both cast alike is meant. Reruns of a side that has exact zeros do not show what AdamW makes of the
   other's rounding: an element of an update whose mean gradient is zero by 1. in both truths may lie as far
   off as AdamW carries the side's own mean gradient, which this rule has passed.
3. A semantic difference larger than phi is DIFFERENT; below it is latent.
4. Without truths: a difference above 64 phi is DIFFERENT, below 8 phi SAME, and nothing is said between.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from parity.judge.floors import Floor
from parity.judge.likeness import Likeness, factor, liken
from spec.own_optimizer import OwnOptimizer
from spec.precision import UNIT_ROUNDOFF
from spec.run import AdamW

Finding = Literal["same", "latent", "semantics", "precision", "different", "unclear", "unmatched"]
"""`same` and `latent` agree; `unclear` says nothing; the others are DIFFERENT."""

SEMANTIC_RMS, SEMANTIC_WORST = 1e-12, 1e-10
"""Clean pairs stay within 1e-15; the smallest edits of the catalogue show as 1e-10 and more."""
FAILS, SURELY_FAILS = 8.0, 64.0
"""Multiples of phi. Clean pairs were seen at up to 7.6 of a floor that did not sample the order of sums."""
U64 = UNIT_ROUNDOFF["float64"]


@dataclass(frozen=True, kw_only=True)
class Error:
    """A side against its own truth, relative to s."""

    rms: float | None
    """None where one of the two alone is not finite."""
    worst: float | None
    factor: float | None
    """How far the factor that carries the truth onto the side is from 1; see `likeness.factor`."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """What an update was made of, in float64."""

    m: np.ndarray
    v: np.ndarray
    lr: float


def error(found: Likeness, side: np.ndarray, truth: np.ndarray, s: float) -> Error:
    """The error of a side, whose likeness to its truth is known."""
    parted = None if found.rms is None else factor(side, truth, s)
    return Error(rms=_over(found.rms, s), worst=found.largest, factor=parted)


def semantic_bounds(phi: Floor, u: float) -> tuple[float, float]:
    """Bounds of RMS / s and of the worst element for two truths."""
    rms, worst = (
        SURELY_FAILS * U64 * max(floor / u, reach)
        for floor, reach in zip((phi.rms, phi.worst), phi.reach, strict=True)
    )
    return max(SEMANTIC_RMS, rms), max(SEMANTIC_WORST, worst)


def semantically_equal(truths: Likeness, s: float, phi: Floor, u: float) -> bool:
    """Rule 1."""
    rms, worst = semantic_bounds(phi, u)
    if truths.rms is None or truths.largest is None:
        return False
    return truths.rms <= rms * s and truths.largest <= worst


def steps_of_rounding(
    moments: Sequence[Moments], s: float, phi: Floor, u: float, optimizer: AdamW | OwnOptimizer
) -> np.ndarray | None:
    """How far apart AdamW can bring updates whose mean gradients are zero by rule 1, at every element.

    Args:
      s, phi: of the mean gradients.

    Returns:
      None where one of these is more than rounding.
    """
    if not isinstance(optimizer, AdamW):
        return None
    apart = np.zeros_like(moments[0].m)
    for made in moments:
        if not semantically_equal(liken(made.m, np.zeros_like(made.m), s, U64), s, phi, u):
            return None
        apart += _step(made, optimizer)
    return apart


def zero_in_truth(means: Sequence[np.ndarray], s: float, phi: Floor, u: float) -> np.ndarray:
    """Which elements of a mean gradient are zero by rule 1 in all truths.

    Args:
      s, phi: of the mean gradients.
    """
    bound = semantic_bounds(phi, u)[1] * s
    return np.logical_and.reduce([np.abs(mean) <= bound for mean in means])


def carried(zero: np.ndarray, moments: Sequence[Moments], optimizer: AdamW) -> np.ndarray:
    """How far apart AdamW carries updates of these moments where the true mean gradient is zero."""
    apart = np.where(zero, sum(_step(made, optimizer) for made in moments), 0.0)
    return np.where(np.isfinite(apart), apart, 0.0)


def without(apart: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a, brought nearer to b by so much."""
    with np.errstate(invalid="ignore"):
        return a - np.where(np.isfinite(a - b), np.clip(a - b, -apart, apart), 0.0)


def equal_but_for(apart: np.ndarray, a: np.ndarray, b: np.ndarray, s: float, phi: Floor, u: float) -> bool:
    """Rule 1 for two truths that rounding parts by so much."""
    with np.errstate(invalid="ignore"):
        nearest = b + np.clip(a - b, -apart, apart)
    return semantically_equal(liken(a, nearest, s, U64), s, phi, u)


def _step(made: Moments, optimizer: AdamW) -> np.ndarray:
    """How far these moments can move a parameter: bias corrections make m at most 1 / (1 - beta1) times as
    large, and v no smaller."""
    return made.lr * np.abs(made.m) / (1 - optimizer.beta1) / (np.sqrt(made.v) + optimizer.eps)


def visible(truths: Likeness, s: float, phi: Floor) -> bool:
    """Rule 3: whether a semantic difference stands out of the profile's noise."""
    if truths.rms is None or truths.largest is None:
        return True
    return truths.rms > phi.rms * s or truths.largest > phi.worst


def multiple(compute_u: float, sum_u: float, terms: int) -> float:
    """Floors that a side may be off its truth: max(8, 2 sqrt(n) u' / u).

    Reruns show how roundings wander. Those of a sum may all lean one way, and then add up sqrt(n) times as
    fast: gradients of norms in float32 were 11 floors off on either side, with 256 terms. In bfloat16, whose
    sums are float32, nothing was more than 4 floors off.

    Args:
      compute_u, sum_u: unit roundoff of results, and of what sums are kept in.
      terms: n, length of the longest sum.
    """
    return max(FAILS, 2 * math.sqrt(terms) * sum_u / compute_u)


def beyond_precision(found: Error, phi: Floor, times: float) -> str:
    """Rule 2: in which measure a side is more than so many floors off; empty where in none."""
    if found.rms is None or found.worst is None:
        return "not finite on one side only"
    for name, value, bound in (
        ("rms", found.rms, phi.rms),
        ("worst element", found.worst, phi.worst),
        ("mean ratio", found.factor or 0.0, phi.factor),
    ):
        if value > times * bound:
            return f"{name} {value:.1e}, {value / bound:.0f} times the floor {bound:.1e}"
    return ""


def without_truth(found: Likeness, s: float, phi: Floor) -> Finding:
    """Rule 4."""
    if found.rms is None or found.largest is None:
        return "different"
    times = max(found.rms / s / phi.rms if s else 0.0, found.largest / phi.worst)
    return "different" if times > SURELY_FAILS else "same" if times < FAILS else "unclear"


def _over(value: float | None, s: float) -> float | None:
    if value is None:
        return None
    return value / s if s else (0.0 if value == 0 else float("inf"))
