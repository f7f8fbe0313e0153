"""What makes figures worth less than they look, found in the records, each with what to do about it.

Must not: change a figure. The bounds stand here, chosen before anything was measured with them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from parity.report.speeds import SpeedWarning
from parity.speed.figures import TimePass

FEWEST_WINDOWS = 5
"""A pass with fewer has no spread to speak of."""
FIRST_WINDOW = 0.05
"""By so much of the others' median, and by five robust standard deviations, a first window stands out."""
DRIFT = 0.03
"""Between the medians of the first and the last third of a pass, with a trend that chance makes 1 in 100."""
CLOCK = 0.02
"""Between the clocks at the first and the last window."""
BUSY = 0.2
"""Load of others, a core."""

_TREND_Z = 2.576
_SIGMA = 1.4826
"""Standard deviations in a median absolute deviation, of normal samples."""
_NEAR_S = 0.25
"""How far from the end of a window a sample of the clocks may be."""

Samples = Sequence[Mapping[str, Any]]


def of_contender(where: str, passes: Sequence[TimePass], conditions: Samples) -> list[SpeedWarning]:
    """Warnings of the passes of one contender that were measured together.

    Args:
      where: what to call it.
      conditions: what `conditions.read` gave.
    """
    return [*_of_passes(where, passes), *_of_clocks(where, passes, conditions)]


def of_machine(conditions: Samples) -> Iterator[SpeedWarning]:
    """Warnings of what else ran on the machine."""
    for item in conditions:
        if item["kind"] != "before":
            continue
        load, cores = item["load_of_others"], item["cores"]
        if load is not None and load > BUSY * cores:
            yield SpeedWarning(
                kind="machine busy",
                where=item["launch"],
                found=f"load average {load:.2f} on {cores} core{'s' * (cores > 1)} before the first launch",
                mend="wait until others are done (a minute, if it was a run of your own) and measure again",
            )
        shared = [str(gpu) for gpu, count in enumerate(item["gpu_processes"]) if count]
        if shared:
            yield SpeedWarning(
                kind="GPU shared",
                where=item["launch"],
                found=f"another process was on GPU {', '.join(shared)} before the launch",
                mend="nvidia-smi shows it; end it, or choose another GPU with CUDA_VISIBLE_DEVICES",
            )


def _of_passes(where: str, passes: Sequence[TimePass]) -> Iterator[SpeedWarning]:
    if len(passes) == 1:
        yield SpeedWarning(
            kind="one pass",
            where=where,
            found="one pass, so how much two launches differ is not known",
            mend="measure again, to the end",
        )
    starts = [one.start for one in passes]
    if any(start is not None and not start["initial"] for start in starts):
        reason = next(start["reason"] for start in starts if start is not None and not start["initial"])
        yield SpeedWarning(
            kind="not the initial state",
            where=where,
            found=reason,
            mend="compare only with figures that were measured alike",
        )
    few = min(len(one.step_ms) for one in passes)
    if few < FEWEST_WINDOWS:
        yield SpeedWarning(
            kind="few windows",
            where=where,
            found=f"{few} window{'s' * (few != 1)} in a pass",
            mend=f"--windows {2 * FEWEST_WINDOWS}",
        )
    slow = [one.step_ms[0] / np.median(one.step_ms[1:]) for one in passes if slow_first(one.step_ms)]
    if slow:
        yield SpeedWarning(
            kind="first window",
            where=where,
            found=f"the first window of a pass took {max(slow):.2f}x the median of the others",
            mend="a longer warm-up: --warmup-steps",
        )
    moved = [change for one in passes if abs(change := drift(one.step_ms)) > 0]
    if moved:
        yield SpeedWarning(
            kind="drift",
            where=where,
            found=f"step times moved by {100 * max(moved, key=abs):+.0f} % over the windows of a pass",
            mend="measure longer (--warmup-steps, --windows), or find what heats up or fills up meanwhile",
        )


def slow_first(step_ms: Sequence[float]) -> bool:
    """Whether the first window stands out of the others, upwards."""
    if len(step_ms) < 4:
        return False
    rest = np.asarray(step_ms[1:])
    median = float(np.median(rest))
    sigma = _SIGMA * float(np.median(np.abs(rest - median)))
    return step_ms[0] > max((1 + FIRST_WINDOW) * median, median + 5 * sigma)


def drift(step_ms: Sequence[float]) -> float:
    """The change from the first to the last third, relative to the median; 0 where there is no trend.

    A trend is one that the Mann-Kendall test finds.
    """
    count = len(step_ms)
    if count < 6:
        return 0.0
    values = np.asarray(step_ms)
    later = np.sign(values[None, :] - values[:, None])[np.triu_indices(count, 1)].sum()
    z = float(later) / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    third = count // 3
    change = float((np.median(values[-third:]) - np.median(values[:third])) / np.median(values))
    return change if abs(z) > _TREND_Z and abs(change) > DRIFT else 0.0


def _of_clocks(where: str, passes: Sequence[TimePass], conditions: Samples) -> Iterator[SpeedWarning]:
    samples = [item for item in conditions if item["kind"] == "gpus"]
    ends = [window["ended"] for one in passes for window in [*one.windows[:1], *one.windows[-1:]]]
    near = [item for end in ends if (item := _nearest(samples, end)) is not None]
    clocks = [gpu["sm_mhz"] for item in near for gpu in item["gpus"] if gpu["sm_mhz"]]
    if clocks and max(clocks) - min(clocks) > CLOCK * max(clocks):
        yield SpeedWarning(
            kind="clocks moved",
            where=where,
            found=f"SM clocks between {min(clocks)} and {max(clocks)} MHz at its first and last windows",
            mend="warm the GPU up longer (--warmup-steps), or have its clocks locked by whoever may",
        )
    words = sorted(set(_throttled(samples, passes)))
    if words:
        yield SpeedWarning(
            kind="throttled",
            where=where,
            found=f"the GPU slowed itself down: {', '.join(words)}",
            mend="nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE tells more; measure when it is cooler",
        )


def _nearest(samples: Samples, at: float) -> Mapping[str, Any] | None:
    nearest = min(samples, key=lambda item: abs(item["at"] - at), default=None)
    return nearest if nearest is not None and abs(nearest["at"] - at) <= _NEAR_S else None


def _throttled(samples: Samples, passes: Sequence[TimePass]) -> Iterable[str]:
    for one in passes:
        for window in one.windows:
            for item in samples:
                if window["ended"] - window["wall_s"] <= item["at"] <= window["ended"]:
                    yield from (word for gpu in item["gpus"] for word in gpu["throttled"] or ())
