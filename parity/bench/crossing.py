"""Where the curves of two contenders cross: the batches at which they take equally long, with intervals.

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


def find(a: str, b: str, curve: Curve) -> list[Crossing]:
    """Every crossing of two curves, interpolated in the logarithms of batch and ratio; one without a batch
    where there is none.

    The interval is that of bootstrap draws: windows drawn anew within each pass, and in each draw the nearest
    crossing looked for that goes the same way. A draw without one counts as before all batches where its
    curves begin as they lie after the crossing, else as after all.

    Args:
      a: the name of the one contender; likewise b.
      curve: two batches at least.
    """
    batches = sorted(curve)
    logs = np.log(np.asarray(batches, float))
    ratios = np.asarray([_log_ratio(*map(np.concatenate, curve[batch])) for batch in batches])
    drawn = np.stack(
        [
            np.log(draw(curve[n][0], 50.0, _SEED + 2 * i) / draw(curve[n][1], 50.0, _SEED + 2 * i + 1))
            for i, n in enumerate(batches)
        ],
        axis=1,
    )
    found = []
    for at, rising in _changes(logs, ratios):
        bounds = np.percentile(
            [_nearest(logs, one, at, rising) for one in drawn], [2.5, 97.5], method="nearest"
        )
        below, above = (a, b) if rising else (b, a)
        ci95 = [_batch(float(bound)) for bound in bounds]
        one = Crossing(a=a, b=b, batch=math.exp(at), ci95=ci95, below=below, above=above, batches=batches)
        found.append(one)
    if not found:
        faster = a if ratios[0] < 0 else b
        found = [Crossing(a=a, b=b, batch=None, ci95=[], below=faster, above=faster, batches=batches)]
    return found


def _log_ratio(one: np.ndarray, other: np.ndarray) -> float:
    return math.log(np.median(one) / np.median(other))


def _changes(logs: np.ndarray, ratios: np.ndarray) -> list[tuple[float, bool]]:
    """Log batch of each change of sign, and whether a is the slower one after it; equal is no change."""
    signs = np.sign(ratios)
    for i in range(1, len(signs)):
        signs[i] = signs[i] or signs[i - 1]
    found = []
    for i in range(len(signs) - 1):
        if signs[i] * signs[i + 1] < 0:
            share = ratios[i] / (ratios[i] - ratios[i + 1])
            found.append((float(logs[i] + (logs[i + 1] - logs[i]) * share), bool(signs[i] < 0)))
    return found


def _nearest(logs: np.ndarray, ratios: np.ndarray, at: float, rising: bool) -> float:
    """Log batch of the change that goes the same way, nearest to `at`; minus or plus infinity for none."""
    alike = [log for log, way in _changes(logs, ratios) if way == rising]
    if alike:
        return min(alike, key=lambda log: abs(log - at))
    # Who is the slower one before a change is that still, or already.
    return -math.inf if (ratios[0] > 0) == rising else math.inf


def _batch(log: float) -> float | None:
    return math.exp(log) if math.isfinite(log) else None
