"""Medians, spreads and the ratio of two sides, from raw samples alone.

The rule of the verdict (`RULE`) is written down before anything is measured. Must not: read files.
"""

import math
import zlib
from collections.abc import Sequence

import numpy as np

from parity.report.speeds import Ratio, SpeedVerdict, Spread

SAME_WITHIN = 0.02
"""Sides closer than this are the same: machines of one kind differ by more."""

RULE = (
    "Ratio of the median step times, torch / jax. Its interval is the 95 % bootstrap interval (windows drawn "
    "anew within each pass), widened to hold the ratio of each pair of passes, since two passes of one "
    f"program differ too. FASTER: the whole interval below {1 - SAME_WITHIN:g}; SLOWER: above "
    f"{1 + SAME_WITHIN:g}; SAME: within both; AMBIGUOUS: otherwise."
)

_DRAWS = 2000
_SEED = 20240229
_HOPELESS = 100
"""Times as many windows: nobody measures so many."""


def spread(samples: Sequence[float]) -> Spread | None:
    """The samples summed up; None where there are none."""
    if not len(samples):
        return None
    values = np.asarray(samples, np.float64)
    median = float(np.median(values))
    return Spread(
        n=len(values),
        median=median,
        p10=float(np.percentile(values, 10)),
        p90=float(np.percentile(values, 90)),
        mad=float(np.median(np.abs(values - median))),
    )


def ratio(
    a: Sequence[Sequence[float]], b: Sequence[Sequence[float]], percentile: float = 50.0
) -> Ratio | None:
    """The ratio of the medians of a and b with its interval and what it says (see `RULE`).

    Args:
      a: the samples of each pass, in the order the passes were run; likewise b.
      percentile: what is compared in place of the medians.

    Returns:
      None where a side has no samples.
    """
    a, b = [samples for samples in a if len(samples)], [samples for samples in b if len(samples)]
    if not a or not b:
        return None
    # Seeds by content and bounds that are draws: b / a is the same comparison, with the inverse interval.
    seeds = _seed(a), _seed(b)
    drawn = draw(a, percentile, seeds[0]) / draw(b, percentile, seeds[1] + (seeds[0] == seeds[1]))
    low, high = (float(bound) for bound in np.percentile(drawn, [2.5, 97.5], method="nearest"))

    def quotient(one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray) -> float:
        return float(np.percentile(one, percentile) / np.percentile(other, percentile))

    passes = [quotient(one, other) for one, other in zip(a, b, strict=False)]
    found = Ratio(
        median=quotient(np.concatenate(a), np.concatenate(b)),
        ci95=[min(low, *passes), max(high, *passes)],
        passes=passes,
    )
    found.verdict = verdict(found)
    if found.verdict == "AMBIGUOUS":
        windows = min(sum(map(len, a)), sum(map(len, b)))
        found.settle = settle(found.median, (low, high), passes, windows)
    return found


def _seed(passes: Sequence[Sequence[float]]) -> int:
    return _SEED + zlib.crc32(np.concatenate([np.asarray(one, np.float64) for one in passes]).tobytes())


def draw(passes: Sequence[Sequence[float]], percentile: float, seed: int) -> np.ndarray:
    """A percentile over all passes in each of `_DRAWS` resamplings, each pass resampled within itself."""
    generator = np.random.default_rng(seed)
    drawn = [generator.choice(np.asarray(samples), (_DRAWS, len(samples))) for samples in passes]
    return np.percentile(np.concatenate(drawn, axis=1), percentile, axis=1)


def verdict(ratio: Ratio) -> SpeedVerdict:
    """What the interval says of the first side relative to the second."""
    low, high = ratio.ci95
    if high < 1 - SAME_WITHIN:
        return "FASTER"
    if low > 1 + SAME_WITHIN:
        return "SLOWER"
    if low >= 1 - SAME_WITHIN and high <= 1 + SAME_WITHIN:
        return "SAME"
    return "AMBIGUOUS"


def settle(median: float, drawn: tuple[float, float], passes: Sequence[float], windows: int) -> str:
    """What would make an ambiguous ratio clear, at the spread that was seen.

    Args:
      drawn: the bootstrap interval, before pairs of passes widened it.
      windows: of the side that has fewer.
    """
    lower, upper = 1 - SAME_WITHIN, 1 + SAME_WITHIN
    # Distances are logarithms, so that a ratio and its inverse ask for as much.
    below, above = math.log(median / drawn[0]), math.log(drawn[1] / median)
    if median > upper:
        want, half = math.log(median / upper), below
        apart = [one for one in passes if one <= upper]
    elif median < lower:
        want, half = math.log(lower / median), above
        apart = [one for one in passes if one >= lower]
    else:
        want, half = min(math.log(median / lower), math.log(upper / median)), max(below, above)
        apart = [one for one in passes if not lower <= one <= upper]
    if apart:
        return (
            f"this ratio is {median:.3f} over all windows and {_listed(passes)} by pair of passes, so much "
            "do two passes of one program differ: more windows will not help, a quieter machine may"
        )
    if half >= math.sqrt(_HOPELESS) * want and want > SAME_WITHIN:
        return (
            f"windows of one program spread so much that {drawn[0]:.3f} to {drawn[1]:.3f} holds the ratio: "
            "a quieter machine may settle it, more windows hardly"
        )
    if half >= math.sqrt(_HOPELESS) * want:
        return (
            f"the ratio {median:.3f} lies too near to {lower:g} or {upper:g} to be settled by more windows: "
            "take the two as about equal, or measure on a quieter machine"
        )
    more = math.ceil(windows * max((half / want) ** 2, 1.0) - windows) + 1
    return f"about {more} more windows a side at the spread seen (it has {windows})"


def _listed(passes: Sequence[float]) -> str:
    return f"{min(passes):.3f} to {max(passes):.3f}" if len(passes) > 1 else f"{passes[0]:.3f}"
