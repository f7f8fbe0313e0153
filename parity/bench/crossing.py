"""Where the curves of two contenders cross: the batch at which they take equally long, with its interval.

Must not: join times that were not measured together; the caller gives pairs that were.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from parity.report.speeds import Crossing
from parity.speed.statistics import draw

Pair = tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]]
"""The step times of a and of b, a list for each pass."""
Curve = Mapping[int, Pair]
"""By batch."""

_SEED = 20240301


def find(a: str, b: str, curve: Curve) -> Crossing:
    """The first crossing of two curves, interpolated in the logarithms of batch and ratio.

    The interval is that of bootstrap draws: windows drawn anew within each pass, and the crossing looked for
    in each draw. Draws in which the curves do not cross count as crossings beyond the sweep, on the side
    where the two came nearer to each other.

    Args:
      a: the name of the one contender; likewise b.
      curve: two batches at least.
    """
    batches = sorted(curve)
    logs = np.log(np.asarray(batches, float))
    medians = [
        np.log(np.median(np.concatenate(curve[n][0])) / np.median(np.concatenate(curve[n][1])))
        for n in batches
    ]
    ratios = np.asarray(medians)
    drawn = np.stack(
        [
            np.log(draw(curve[n][0], 50.0, _SEED + 2 * i) / draw(curve[n][1], 50.0, _SEED + 2 * i + 1))
            for i, n in enumerate(batches)
        ],
        axis=1,
    )
    at = _first(logs, ratios)
    bounds = np.percentile([_first(logs, one) for one in drawn], [2.5, 97.5], method="nearest")
    return Crossing(
        a=a,
        b=b,
        batch=_batch(at),
        ci95=[_batch(float(bound)) for bound in bounds] if _batch(at) is not None else [],
        below=a if ratios[0] < 0 else b,
        above=a if ratios[-1] < 0 else b,
        batches=batches,
    )


def _first(logs: np.ndarray, ratios: np.ndarray) -> float:
    """Log batch of the first change of sign; minus or plus infinity where there is none."""
    for i in range(len(logs) - 1):
        here, there = ratios[i], ratios[i + 1]
        if (here < 0) != (there < 0):
            return float(logs[i] + (logs[i + 1] - logs[i]) * here / (here - there))
    return -math.inf if abs(ratios[0]) < abs(ratios[-1]) else math.inf


def _batch(log: float) -> float | None:
    return math.exp(log) if math.isfinite(log) else None
