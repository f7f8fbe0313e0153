"""jax.profiler, XLA's own, as the instrument of a `trace` job where CUPTI itself cannot be had.

It sees operations of the framework too, and XLA may leave its command buffers while it looks. Must not: be
loaded by a job that does not trace. Counterpart: `torch_impl/profile.py`.
"""

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
from jax.profiler import ProfileData, TraceAnnotation

from spec.trace import DeviceSpan, HostSpan, TracedStep
from spec.worker.tracing import Found, host_kind, kernel_kind

_MARK = "parity_step "
_HOST_PLANE, _DEVICE_PLANE, _STREAM = "/host:CPU", "/device:GPU:", "Stream #"
_HOUSEKEEPING = ("ThreadpoolListener::", "end: ")


class Profiler:
    """A `spec.worker.tracing.Instrument`.

    Args:
      reason: why it is not CUPTI.
    """

    def __init__(self, reason: str) -> None:
        self._reason, self._folder = reason, tempfile.TemporaryDirectory()

    def start(self) -> None:
        """From here on; the device is idle."""
        options = jax.profiler.ProfileOptions()
        # Every Python call would be a span of its own, and cost what it takes to write one.
        options.python_tracer_level = 0
        jax.profiler.start_trace(self._folder.name, profiler_options=options)

    def step(self, number: int) -> AbstractContextManager[Any]:
        """Around the call of one step."""
        return TraceAnnotation(f"{_MARK}{number}")

    def stop(self) -> Found:
        """What was seen until now; the device is idle again."""
        jax.profiler.stop_trace()
        with self._folder as folder:
            (file,) = Path(folder).rglob("*.xplane.pb")
            return found(ProfileData.from_file(str(file)).planes, self._reason)


def found(recorded: Any, reason: str) -> Found:
    """The spans of a profile's planes, whose times are in ns."""
    planes = list(recorded)
    host = [plane for plane in planes if plane.name == _HOST_PLANE]
    events = [(thread, event) for plane in host for thread, event in _events(plane)]
    marks = [event for _, event in events if event.name.startswith(_MARK)]
    steps = [_step(event) for event in marks]
    return Found(
        instrument="jax.profiler",
        reason=reason,
        steps=tuple(sorted(steps, key=lambda step: step.begin_us)),
        host=tuple(_host(events)),
        device=tuple(span for plane in planes for span in _device(plane)),
    )


def _events(plane: Any) -> Iterator[tuple[int, Any]]:
    """Events with the number of their line; a line of the host is a thread."""
    for number, line in enumerate(plane.lines):
        for event in line.events:
            yield number, event


def _step(event: Any) -> TracedStep:
    begin, end = event.start_ns / 1e3, (event.start_ns + event.duration_ns) / 1e3
    return TracedStep(int(event.name.removeprefix(_MARK)), begin, end)


def _host(events: list[tuple[int, Any]]) -> Iterator[HostSpan]:
    for thread, event in events:
        if event.duration_ns and not event.name.startswith((_MARK, *_HOUSEKEEPING)):
            yield HostSpan(
                event.name,
                event.start_ns / 1e3,
                event.duration_ns / 1e3,
                host_kind(event.name),
                thread,
                dict(event.stats).get("correlation_id"),
            )


def _device(plane: Any) -> Iterator[DeviceSpan]:
    """What ran on the streams of a GPU's plane; its other lines tell the same again by operation."""
    if not plane.name.startswith(_DEVICE_PLANE):
        return
    device = int(plane.name.removeprefix(_DEVICE_PLANE).split()[0])
    for line in plane.lines:
        if not line.name.startswith(_STREAM):
            continue
        stream = int(line.name.removeprefix(_STREAM).partition("(")[0])
        for event in line.events:
            kind = next((k for k in ("memcpy", "memset") if event.name.lower().startswith(k)), None)
            yield DeviceSpan(
                event.name,
                event.start_ns / 1e3,
                event.duration_ns / 1e3,
                kind or kernel_kind(event.name),
                device,
                stream,
                dict(event.stats).get("correlation_id"),
            )
