"""The figures of a trace; their words are `spec.measure`'s.

Must not: judge whether the trace shows the timed program; `provenance` does.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity.report.traced import Distribution, Gaps
from parity.speed import intervals
from parity.speed.spans import Parted, Updated, interval
from spec.trace import DeviceSpan, HostSpan, Trace

NO_DEVICE = "a CPU has no device to launch work on; what the host did is in the trace"
NOT_ALL_CALLS = "CUPTI alone records every call to driver and runtime, and this trace is not CUPTI's"

FIGURES = (
    "launch_calls_per_step",
    "launch_calls_by_api",
    "launch_api_us_per_step",
    "graph_updates_per_step",
    "graph_update_calls_by_api",
    "kernels_per_step",
    "device_busy_ms",
    "device_idle_share",
    "gap_us",
    "exposed_communication_ms",
    "launch_latency_us",
)
"""What a trace tells of a device, in the order of `spec.measure`."""


@dataclass(frozen=True, kw_only=True)
class Traced:
    """Figures of the settled traced steps, each of one training step."""

    steps: int
    """Training steps that they are of."""
    step_ms: float | None
    """From one step's call to the next one's, tracing included; the median."""
    launch_calls_per_step: float | None = None
    launch_calls_by_api: dict[str, float] | None = None
    launch_api_us_per_step: float | None = None
    graph_updates_per_step: float | None = None
    graph_update_calls_by_api: dict[str, float] | None = None
    kernels_per_step: float | None = None
    device_busy_ms: float | None = None
    device_idle_share: float | None = None
    gap_us: Gaps | None = None
    exposed_communication_ms: float | None = None
    launch_latency_us: Distribution | None = None
    reasons: dict[str, str]
    """Why a figure is null, by figure."""


def figures(trace: Trace) -> Traced:
    """Everything that can be counted in a trace."""
    parted = Parted(trace)
    counted = parted.settled
    num_steps = sum(step.steps for step in counted)
    periods = [step.period_us / step.steps / 1e3 for step in counted if step.period_us is not None]
    step_ms = float(np.median(periods)) if periods else None
    if trace.device_name == "cpu":
        return Traced(steps=num_steps, step_ms=step_ms, reasons=dict.fromkeys(FIGURES, NO_DEVICE))
    calls = [launched.call for step in counted for launched in step.launches]
    kernels = [span for step in counted for span in step.work if span.kind in ("kernel", "collective")]
    busy, idle_share, gap_us = _device_time(parted, num_steps)
    exposed, latency = _exposed_ms(parted), _latency_us(parted)
    reasons = {"launch_latency_us": "the device was busy at every launch"} if latency is None else {}
    if exposed is None:
        reasons["exposed_communication_ms"] = "no collective ran in the traced steps"
    updated = _updated(trace, parted)
    update_calls = [call for one in updated or () for call in one.calls]
    if updated is None:
        reasons |= dict.fromkeys(("graph_updates_per_step", "graph_update_calls_by_api"), NOT_ALL_CALLS)
    if parted.unmatched:
        reasons["launch_latency_us"] = f"{parted.unmatched} device spans have no known launch"
        latency = None
    return Traced(
        steps=num_steps,
        step_ms=step_ms,
        launch_calls_per_step=len(calls) / num_steps,
        launch_calls_by_api=_by_api(calls, num_steps),
        launch_api_us_per_step=sum(call.duration_us for call in calls) / num_steps,
        graph_updates_per_step=None if updated is None else len(updated) / num_steps,
        graph_update_calls_by_api=None if updated is None else _by_api(update_calls, num_steps),
        kernels_per_step=len(kernels) / num_steps,
        device_busy_ms=busy,
        device_idle_share=idle_share,
        gap_us=gap_us,
        exposed_communication_ms=exposed,
        launch_latency_us=latency,
        reasons=reasons,
    )


def _by_api(calls: Sequence[HostSpan], num_steps: int) -> dict[str, float]:
    """Calls of one step by name, the most frequent first."""
    return {name: count / num_steps for name, count in Counter(call.name for call in calls).most_common()}


def _updated(trace: Trace, parted: Parted) -> list[Updated] | None:
    """Graphs that were changed before their launch; None where not all calls are recorded: PyTorch's and
    JAX's own profilers choose which of the driver's they keep."""
    if trace.instrument != "cupti":
        return None
    return [one for step in parted.settled for one in step.updated]


def _device_time(parted: Parted, num_steps: int) -> tuple[float | None, float | None, Gaps | None]:
    """Busy ms of one step, the idle share of all of them, and the gaps."""
    work = [step for step in parted.settled if step.work]
    if not work:
        return None, None, None
    begins = [step.work[0].begin_us for step in work]
    ends = [*begins[1:], max(interval(span)[1] for span in parted.device)]
    everything = intervals.within(_intervals(parted.device), begins[0], ends[-1])
    busy = [
        intervals.length(intervals.within(everything, begin, end)) / step.steps / 1e3
        for step, begin, end in zip(work, begins, ends, strict=True)
    ]
    span_us, lengths = ends[-1] - begins[0], intervals.gaps(everything)
    share = sum(lengths) / span_us
    gap_us = Gaps(n=len(lengths), per_step=len(lengths) / num_steps, share=share, **_quantiles(lengths))
    return float(np.median(busy)), share, gap_us


def _exposed_ms(parted: Parted) -> float | None:
    """The time of one step's collectives that no other kernel runs beside; None where there are none."""
    covers = intervals.union(_intervals(parted.device, "kernel"))
    exposed = [
        intervals.length(intervals.without(_intervals(step.work, "collective"), covers)) / step.steps / 1e3
        for step in parted.settled
    ]
    return float(np.median(exposed)) if _intervals(parted.device, "collective") else None


def _intervals(spans: Sequence[DeviceSpan], *kinds: str) -> list[intervals.Interval]:
    """Of spans of these kinds, or of all."""
    return [interval(span) for span in spans if span.kind in kinds or not kinds]


def _latency_us(parted: Parted) -> Distribution | None:
    """From a launch's begin to that of the first thing it caused, where the device was idle at the call."""
    found, idle_from = [], float("-inf")
    settled = {id(launched.call) for step in parted.settled for launched in step.launches}
    for launched in parted.launches:
        begins = [span.begin_us for span in launched.caused]
        if begins and idle_from <= launched.call.begin_us and id(launched.call) in settled:
            found.append(min(begins) - launched.call.begin_us)
        idle_from = max([idle_from, *(interval(span)[1] for span in launched.caused)])
    return Distribution(n=len(found), **_quantiles(found)) if found else None


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return dict.fromkeys(("p50", "p90", "max"), 0.0)
    p50, p90, largest = np.percentile(values, [50, 90, 100])
    return {"p50": float(p50), "p90": float(p90), "max": float(largest)}
