"""The rule: from one difference a seed to EQUIVALENT, DIFFERENT or INCONCLUSIVE.

Two one-sided t tests (Schuirmann 1987) at 5 % each ask whether the mean difference is surely inside the
margin; two more whether it is surely outside. All four are read off one interval of 90 %: inside the margin
it is EQUIVALENT, outside DIFFERENT, across its edge INCONCLUSIVE. Must not: read a file.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity.equivalence.beta import student_cdf, student_quantile
from parity.report.equivalence import Outcome

ALPHA = 0.05
"""Chance, at most, that a difference just as large as the margin is called equivalent; or different."""
CHANCE = 0.8
"""Of deciding, with the number of seeds that is said to be enough."""
WINDOW = 0.1
"""Share of the steps, the last ones, whose losses are averaged: a single batch's loss is noise."""
_MOST_SEEDS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Tested:
    """What the tests say of the mean difference."""

    outcome: Outcome
    mean: float
    spread: float
    """Standard deviation of the differences over the seeds."""
    low: float
    high: float
    p: float
    """The larger p-value of the two one-sided tests against equivalence."""
    seeds_needed: int | None
    """Seeds that would decide, see `seeds_needed`."""


def last_window(losses: np.ndarray) -> float:
    """The mean of the last tenth of the losses, of one at least."""
    return float(np.mean(losses[-math.ceil(WINDOW * len(losses)) :]))


def relative(one: float, other: float) -> float:
    """(one - other) / the mean of their sizes; 0 where both are 0."""
    size = (abs(one) + abs(other)) / 2
    return (one - other) / size if size else 0.0


def test(differences: Sequence[float], margin: float) -> Tested:
    """Tests paired differences, two at least, all finite, against a margin of the same unit."""
    count = len(differences)
    mean, spread = statistics.fmean(differences), statistics.stdev(differences)
    error = spread / math.sqrt(count)
    reach = student_quantile(1 - ALPHA, count - 1) * error
    low, high = mean - reach, mean + reach
    outcome: Outcome = "INCONCLUSIVE"
    if -margin < low and high < margin:
        outcome = "EQUIVALENT"
    elif low > margin or high < -margin:
        outcome = "DIFFERENT"
    return Tested(
        outcome=outcome,
        mean=mean,
        spread=spread,
        low=low,
        high=high,
        p=_against(abs(mean), margin, error, count - 1),
        seeds_needed=seeds_needed(abs(mean), spread, margin),
    )


def _against(size: float, margin: float, error: float, df: int) -> float:
    """P-value of the one of both tests that is harder to pass."""
    if not error:
        return float(size >= margin)
    return student_cdf((size - margin) / error, df)


def seeds_needed(size: float, spread: float, margin: float) -> int | None:
    """How many seeds decide with a chance of about 80 %, if mean and spread are what was seen.

    Returns:
      None where no number does: the mean is the margin, or lies so near to it that 65,536 are too few.
    """
    distance = abs(margin - size)

    def decides(count: int) -> bool:
        if not spread:
            return True
        error, df = spread / math.sqrt(count), count - 1
        reach = student_quantile(1 - ALPHA, df)
        chance = student_cdf(distance / error - reach, df)
        if size < margin:
            # The other edge of the margin is near too where the mean is small.
            chance -= student_cdf(reach - (margin + size) / error, df)
        return chance >= CHANCE

    if not distance:
        return None
    high = 2
    while not decides(high):
        if high >= _MOST_SEEDS:
            return None
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high
