"""The page's timelines: of every traced pass one step, what the host did above what the devices did.

It is the step of median length. Its picture goes from calling it to calling the next one, or to the end of
all that was done where there is no next one. Must not: compute figures.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from parity.report.charts import timeline as chart
from parity.report.charts.names import short
from parity.report.charts.timeline import Lane, Span
from parity.report.page.folder import Pass, RunFolder
from parity.report.page.picture import Picture, both
from parity.speed.spans import settling
from spec.trace import DeviceSpan, HostSpan, Trace, TracedStep

_DETAIL_SPANS = 24
"""Device spans that the detail of the busiest side shows."""
_MOST_LANES = 10
_HOST_LANES = {"launch": "launches", "sync": "waits", "other": "operations"}
_DEVICE_LANES = {
    "kernel": "kernels",
    "collective": "communication",
    "memcpy": "copies",
    "memset": "fills",
}


@dataclass(frozen=True)
class Step:
    """A traced step, cut out and sorted into lanes."""

    label: str
    number: int
    length_us: float
    lanes: tuple[Lane, ...]
    left_out: int
    """Lanes beyond what a picture holds."""
    device_name: str
    instrument: str

    @property
    def data(self) -> dict[str, Any]:
        """The spans for the script that draws another window."""
        names = sorted({span.name for lane in self.lanes for span in lane.spans})
        index = {name: number for number, name in enumerate(names)}
        return {
            "names": names,
            "short": [short(name) for name in names],
            "length_us": round(self.length_us, 3),
            "lanes": [
                {
                    "kind": lane.kind,
                    "spans": [
                        [index[span.name], round(span.begin_us, 3), round(span.duration_us, 3)]
                        for span in lane.spans
                    ],
                }
                for lane in self.lanes
            ],
        }


@dataclass(frozen=True)
class Timeline:
    """A step with its two pictures."""

    step: Step
    overview: Picture
    detail: Picture
    window: tuple[float, float]


@dataclass(frozen=True)
class Section:
    """What the page shows of traces."""

    timelines: list[Timeline]
    why_not: str

    @property
    def has_device(self) -> bool:
        """Whether a device was seen at work."""
        return any(lane.is_device for one in self.timelines for lane in one.step.lanes)


def section(folder: RunFolder) -> Section:
    """All timelines on one scale; a reason where nothing was traced."""
    found = [(one, one.trace()) for one in folder.of("trace")]
    steps = [_step(one, trace) for one, trace in found if trace is not None and trace.steps]
    if not steps:
        asked = bool(folder.of("trace"))
        return Section([], "no traced step can be read" if asked else "this run made no trace")
    scale = max(step.length_us for step in steps)
    width = min(_window_us(step) for step in steps)
    return Section([_timeline(step, scale, width) for step in steps], "")


def _step(one: Pass, trace: Trace) -> Step:
    index = _typical(trace.steps)
    step = trace.steps[index]
    begin = step.begin_us
    if index + 1 < len(trace.steps):
        end = trace.steps[index + 1].begin_us
    else:
        ends = [span.begin_us + span.duration_us for span in trace.device if span.begin_us >= begin]
        end = max([step.end_us, *ends])
    lanes = [*_host_lanes(trace.host, begin, end), *_device_lanes(trace.device, begin, end)]
    numbered = tuple(replace(lane, number=number) for number, lane in enumerate(lanes[:_MOST_LANES]))
    return Step(
        label=f"{one.side} {one.mode}".strip(),
        number=step.number,
        length_us=max(end - begin, 1e-3),
        lanes=numbered,
        left_out=max(0, len(lanes) - _MOST_LANES),
        device_name=trace.device_name,
        instrument=trace.instrument if trace.reason is None else f"{trace.instrument} ({trace.reason})",
    )


def _typical(steps: Sequence[TracedStep]) -> int:
    """The step of median length, from its call to the next one; unsettled ones are left out."""
    begins = [step.begin_us for step in steps]
    lengths = [late - early for early, late in pairwise(begins)]
    known = range(settling(len(steps)), len(lengths))
    order = sorted(known, key=lambda index: lengths[index])
    return order[len(order) // 2] if order else 0


def _host_lanes(spans: Sequence[HostSpan], begin: float, end: float) -> Iterator[Lane]:
    """Launches and waits of each thread; a call inside another is left out, as when calls are counted."""
    threads = sorted({span.thread for span in spans})
    for order, thread in enumerate(threads):
        for kind, words in _HOST_LANES.items():
            own = [span for span in spans if (span.thread, span.kind) == (thread, kind)]
            cut = tuple(_outermost(_cut(own, begin, end)))
            if cut:
                which = f" of thread {order + 1}" if len(threads) > 1 else ""
                yield Lane(f"host, {words}{which}", kind, cut, is_device=False, number=0)


def _device_lanes(spans: Sequence[DeviceSpan], begin: float, end: float) -> Iterator[Lane]:
    """Streams in the order of their numbers, communication last."""
    devices = sorted({span.device for span in spans})
    places = sorted({(span.kind == "collective", span.device, span.stream) for span in spans})
    for _, device, stream in places:
        for kind, words in _DEVICE_LANES.items():
            if (kind == "collective") != _:
                continue
            own = [span for span in spans if (span.device, span.stream, span.kind) == (device, stream, kind)]
            cut = tuple(_cut(own, begin, end))
            if cut:
                which = f"device {device}" if len(devices) > 1 else "device"
                label = f"{which}, stream {stream}, {words}"
                yield Lane(label, kind, cut, is_device=True, number=0)


def _cut(spans: Sequence[HostSpan] | Sequence[DeviceSpan], begin: float, end: float) -> list[Span]:
    """The spans that lie in the step, at least in part, from its beginning."""
    return [
        Span(span.begin_us - begin, span.duration_us, span.name)
        for span in sorted(spans, key=lambda span: (span.begin_us, -span.duration_us))
        if span.begin_us < end and span.begin_us + span.duration_us > begin
    ]


def _outermost(spans: Sequence[Span]) -> Iterator[Span]:
    """Spans that do not lie within the one before."""
    stop = float("-inf")
    for span in spans:
        if span.end_us > stop:
            stop = span.end_us
            yield span


def _window_us(step: Step) -> float:
    """A window that holds a few dozen spans where they are densest."""
    device = sorted(span.begin_us for lane in step.lanes if lane.is_device for span in lane.spans)
    begins = device or sorted(span.begin_us for lane in step.lanes for span in lane.spans)
    if len(begins) <= _DETAIL_SPANS:
        return step.length_us
    return (
        min(late - early for early, late in zip(begins, begins[_DETAIL_SPANS:], strict=False))
        or step.length_us
    )


def _timeline(step: Step, scale: float, width: float) -> Timeline:
    window = _window(step, width)
    name = f"Step {step.number} of {step.label}"
    overview = partial(_overview, step=step, scale=scale, window=window, title=f"{name}, the whole step")
    detail = partial(_detail, step=step, window=window, title=f"{name}, a part of it")
    left_out = f" {step.left_out} more lanes are not shown." if step.left_out else ""
    return Timeline(
        step,
        both(
            overview,
            f"Step {step.number}, {step.length_us:,.0f} us, traced by {step.instrument} on "
            f"{step.device_name}; a bar's height is the share of its time in which something ran.{left_out}",
        ),
        both(
            detail,
            f"What the frame holds, {width:,.0f} us, call by call and kernel by kernel; a lane in which "
            f"nothing happened then is left out.",
        ),
        window,
    )


def _window(step: Step, width: float) -> tuple[float, float]:
    """From the first launch at which kernels run within the window and most lanes have something to show."""
    launching = [lane for lane in step.lanes if lane.kind == "launch"] or step.lanes
    begins = sorted({span.begin_us for lane in launching for span in lane.spans})
    starts = [max(0.0, min(begin - width * 0.02, step.length_us - width)) for begin in begins] or [0.0]
    edges = [
        (
            lane.kind == "kernel",
            sorted(span.begin_us for span in lane.spans),
            sorted(span.end_us for span in lane.spans),
        )
        for lane in step.lanes
    ]

    def worth(start: float) -> tuple[bool, int]:
        seen = [
            is_kernel
            for is_kernel, begins, ends in edges
            if bisect_left(begins, start + width) > bisect_right(ends, start)
        ]
        return any(seen), len(seen)

    begin = max(starts, key=worth)
    return begin, begin + width


def _overview(width: float, step: Step, scale: float, window: tuple[float, float], title: str) -> Any:
    return chart.overview(step.lanes, step.length_us, scale, window, width, title)


def _detail(width: float, step: Step, window: tuple[float, float], title: str) -> Any:
    return chart.detail(step.lanes, window, width, title)
