"""How sure a prediction is: the model fitted anew on windows drawn anew, many times.

Must not: say anything of what the model leaves out; what is assumed stays as it is.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from benchmarks.scaling.fit import fit, predict
from benchmarks.scaling.model import Node
from benchmarks.scaling.points import Family, Point

DRAWS = 100
_SEED = 20240229


def intervals(
    points: Sequence[Point], devices: int, node: Node
) -> dict[tuple[str, Family], tuple[float, float]]:
    """95 % intervals of the predicted step_ms by preset and family, in ms.

    Passes are drawn anew, and then the windows of each, since two launches of one program differ too. What
    cannot be predicted from most draws has no interval.
    """
    generator = np.random.default_rng(_SEED)
    found: dict[tuple[str, Family], list[float]] = {}
    for _ in range(DRAWS):
        for one in fit([_drawn(point, generator) for point in points]):
            step_ms = predict(one, devices, node).step_ms.value
            if step_ms is not None:
                found.setdefault((one.preset, one.family), []).append(step_ms)
    bounds = {key: np.percentile(values, [2.5, 97.5]) for key, values in found.items() if _most(values)}
    return {key: (float(low), float(high)) for key, (low, high) in bounds.items()}


def _most(values: Sequence[float]) -> bool:
    return len(values) > DRAWS / 2


def _drawn(point: Point, generator: np.random.Generator) -> Point:
    passes = [
        point.windows_ms[i] for i in generator.integers(len(point.windows_ms), size=len(point.windows_ms))
    ]
    windows = np.concatenate([generator.choice(one, len(one)) for one in passes])
    return replace(point, step_ms=msgspec.structs.replace(point.step_ms, median=float(np.median(windows))))
