"""When the host is what takes the time: step_ms = max(host_ms, device_ms + device_ms_per_row * batch).

The host's cost belongs to a contender, the device's to a side. Fitted on batches declared beforehand, in
relative errors; the others are predicted. Must not: look at a point that it is going to predict.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from parity.bench.contenders import Contender
from parity.report.speeds import HostModel

_LEAST = 2
"""Declared batches at which a contender was measured: one point is no more the host's than the device's."""
_TIE = 1e-9
"""Of models that fit equally well the first is kept, which is the one with fewer points of the host's."""

Times = Mapping[int, float]
"""Median step_ms by batch."""


def fit(observed: Mapping[Contender, Times], declared: Sequence[int]) -> list[HostModel]:
    """The model of each side, fitted on the declared batches that were measured; see `has_model`.

    Of a contender's points the smaller batches are taken to be the host's and the rest the device's; every
    such division is tried, and the one with the least squared logarithmic error is kept.
    """
    sides = dict.fromkeys(side for side, _ in observed)
    return [
        _fit_side(
            side,
            {
                mode: {batch: times[batch] for batch in sorted(times) if batch in declared}
                for (of, mode), times in observed.items()
                if of == side
            },
        )
        for side in sides
    ]


def has_model(times: Times, declared: Sequence[int]) -> bool:
    """Whether a contender was measured at enough of the declared batches for a model of it."""
    return sum(batch in declared for batch in times) >= _LEAST


def predict(model: HostModel, mode: str, batch: float) -> float | None:
    """step_ms of a contender at a batch; None where the model says nothing of it."""
    host = model.host_ms.get(mode)
    device = None
    if model.device_ms is not None and model.device_ms_per_row is not None:
        device = model.device_ms + model.device_ms_per_row * batch
    known = [one for one in (host, device) if one is not None]
    return max(known) if known else None


def bend(model: HostModel, mode: str) -> float | None:
    """The batch from which on the device takes longer than the host; None where the model has no such one."""
    host, device, per_row = model.host_ms.get(mode), model.device_ms, model.device_ms_per_row
    if host is None or device is None or not per_row or host <= device:
        return None
    return (host - device) / per_row


def _fit_side(side: str, curves: Mapping[str, Times]) -> HostModel:
    best, least = None, math.inf
    usable = {mode: times for mode, times in curves.items() if len(times) >= _LEAST}
    for model in _candidates(side, usable):
        error = 0.0
        for mode, times in usable.items():
            for batch, time_ms in times.items():
                predicted = predict(model, mode, batch)
                error += math.inf if predicted is None else math.log(predicted / time_ms) ** 2
        if error < least - _TIE:
            best, least = model, error
    if best is None:
        return HostModel(
            side=side,
            host_ms=dict.fromkeys(curves),
            device_ms=None,
            device_ms_per_row=None,
            reason=_too_few(curves),
        )
    best.reason = _reason(best, curves)
    best.host_ms = dict.fromkeys(curves) | best.host_ms
    return best


def _reason(model: HostModel, curves: Mapping[str, Times]) -> str:
    reasons = []
    if model.device_ms is None:
        reasons.append("no declared point that was measured grows with the batch: the device never shows")
    if hidden := [mode for mode, host in model.host_ms.items() if host is None]:
        reasons.append(
            f"every declared point measured of {', '.join(hidden)} grows with the batch: its host never shows"
        )
    if too_few := _too_few(curves):
        reasons.append(too_few)
    return "; ".join(reasons)


def _too_few(curves: Mapping[str, Times]) -> str:
    """Of which contenders there is no model, and why."""
    reasons = []
    for number, words in enumerate(("no declared batch", "one declared batch alone")):
        if modes := [mode for mode, times in curves.items() if len(times) == number]:
            reasons.append(f"{words} of {', '.join(modes)} was measured, and a model needs {_LEAST}")
    return "; ".join(reasons)


def _candidates(side: str, curves: Mapping[str, Times]) -> Iterator[HostModel]:
    """A model for each way to give the smaller batches of each contender to the host."""
    ways = [range(len(times) + 1) for times in curves.values()]
    for counts in itertools.product(*ways):
        hosts: dict[str, float | None] = {}
        devices: list[tuple[int, float]] = []
        for (mode, times), count in zip(curves.items(), counts, strict=True):
            points = list(times.items())
            logs = [math.log(time_ms) for _, time_ms in points[:count]]
            hosts[mode] = math.exp(sum(logs) / count) if count else None
            devices += points[count:]
        if devices:
            device_ms, per_row = _line(devices)
            yield HostModel(
                side=side, host_ms=hosts, device_ms=device_ms, device_ms_per_row=per_row, reason=""
            )
        elif any(host is not None for host in hosts.values()):
            yield HostModel(side=side, host_ms=hosts, device_ms=None, device_ms_per_row=None, reason="")


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Least relative squares of a + b * batch with neither below 0."""
    batch, time_ms = (np.asarray(values, float) for values in zip(*points, strict=True))
    columns = np.stack([1 / time_ms, batch / time_ms], axis=1)
    tries = []
    if len(set(batch)) > 1:
        tries.append(np.linalg.lstsq(columns, np.ones(len(batch)), rcond=None)[0])
    for only in (0, 1):
        alone = np.zeros(2)
        alone[only] = columns[:, only].sum() / (columns[:, only] ** 2).sum()
        tries.append(alone)
    allowed = [one for one in tries if (one >= 0).all()]
    a, b = min(allowed, key=lambda one: float(((columns @ one - 1) ** 2).sum()))
    return float(a), float(b)
