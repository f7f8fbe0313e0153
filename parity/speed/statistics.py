"""Medians, spreads and the ratio of two sides, from raw samples alone.

The rule of the verdict (`RULE`) is written down before anything is measured. Must not: read files.
"""

from collections.abc import Sequence

import numpy as np

from parity.report.result import Ratio, SpeedVerdict, Spread

SAME_WITHIN = 0.02
"""Sides closer than this are the same: machines of one kind differ by more."""

RULE = (
    "Ratio of the median step times, torch / jax. Its interval is the 95 % bootstrap interval (windows drawn "
    "anew within each pass), widened to hold the ratio of each pair of passes, since two launches of one "
    f"program differ too. FASTER: the whole interval below {1 - SAME_WITHIN:g}; SLOWER: above "
    f"{1 + SAME_WITHIN:g}; SAME: within both; AMBIGUOUS: otherwise."
)

_DRAWS = 2000
_SEED = 20240229


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


def ratio(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> Ratio | None:
    """The ratio of the medians of a and b with its interval (see `RULE`).

    Args:
      a: the samples of each pass, in the order the passes were run; likewise b.

    Returns:
      None where a side has no samples.
    """
    a, b = [samples for samples in a if len(samples)], [samples for samples in b if len(samples)]
    if not a or not b:
        return None
    generator = np.random.default_rng(_SEED)
    drawn = _drawn_medians(a, generator) / _drawn_medians(b, generator)
    low, high = np.percentile(drawn, [2.5, 97.5])
    passes = [float(np.median(one) / np.median(other)) for one, other in zip(a, b, strict=False)]
    return Ratio(
        median=float(np.median(np.concatenate(a)) / np.median(np.concatenate(b))),
        ci95=[float(min(low, *passes)), float(max(high, *passes))],
        passes=passes,
    )


def _drawn_medians(passes: list[Sequence[float]], generator: np.random.Generator) -> np.ndarray:
    """Medians over all passes of `_DRAWS` resamplings, each pass resampled within itself."""
    drawn = [generator.choice(np.asarray(samples), (_DRAWS, len(samples))) for samples in passes]
    return np.median(np.concatenate(drawn, axis=1), axis=1)


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
