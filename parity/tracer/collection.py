"""CUPTI's activity records of the traced steps, as spans.

Kinds: RUNTIME and DRIVER for the host's calls; CONCURRENT_KERNEL, MEMCPY, MEMCPY2 and MEMSET for the device.
GRAPH_TRACE stays off: with it a graph would be one opaque record instead of its nodes.
Must not: be imported by anything but the tracer.
"""

import ctypes
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import cache
from typing import Any

from spec.trace import DeviceSpan, HostSpan, TracedStep
from spec.worker.tracing import Found, TraceFailed, host_kind, kernel_kind, plain_name

_KINDS = ("RUNTIME", "DRIVER", "CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET")
_BUFFER_BYTES = 16 << 20
"""So large that few calls ask for one: each asks Python."""
_FORCED = 1
"""CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: buffers that are not full come too."""


class Cupti:
    """A `spec.worker.tracing.Instrument`; one a process, made before the framework is imported.

    Raises:
      ImportError: cupti-python is not installed.
    """

    def __init__(self) -> None:
        from cupti import cupti

        self._cupti: Any = cupti
        self._kinds = {name: getattr(cupti.ActivityKind, name) for name in _KINDS}
        self._steps: list[TracedStep] = []
        self._host: list[HostSpan] = []
        self._device: list[DeviceSpan] = []
        self._errors: list[Exception] = []
        self._origin_ns = 0
        # Attaches to the driver, which reading the clock would not: CUPTI knows of every graph from here on.
        cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), self._completed)

    def start(self) -> None:
        """Begins to collect, and forgets what an earlier job of this process left."""
        self._steps, self._host, self._device, self._errors = [], [], [], []
        # CUPTI counts ns since 1970: as us in a double they are good to a quarter of a us only.
        self._origin_ns = self._cupti.get_timestamp()
        for kind in self._kinds.values():
            self._cupti.activity_enable(kind)

    @contextmanager
    def step(self, number: int) -> Generator[None]:
        """Notes when a step begins and ends, on the clock of the records."""
        begin_us = self._now_us()
        yield
        self._steps.append(TracedStep(number, begin_us, self._now_us()))

    def _now_us(self) -> float:
        return (self._cupti.get_timestamp() - self._origin_ns) / 1e3

    def stop(self) -> Found:
        """Ends collecting; the device is idle, so every record is complete.

        Raises:
          TraceFailed: records were lost.
        """
        # Disabled first: a thread that goes on calling would take a new buffer, and CUPTI hands back what is
        # out when the process ends and Python is gone.
        for kind in self._kinds.values():
            self._cupti.activity_disable(kind)
        self._cupti.activity_flush_all(_FORCED)
        dropped = ctypes.c_size_t()
        self._cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(dropped))
        # Another thread may be amid a call, which then has no end; what a device did always has one.
        host = tuple(span for span in self._host if _is_timed(span))
        launches = (span for span in self._host if span.kind == "launch")
        untimed = sum(not _is_timed(span) for span in (*self._device, *launches))
        if dropped.value or untimed or self._errors:
            raise TraceFailed(
                "Every record of a traced step is kept.",
                f"{dropped.value} dropped by CUPTI, {untimed} without times, "
                f"{len(self._errors)} buffers unread: {self._errors[:1]}",
                "trace fewer steps",
            )
        return Found(
            instrument="cupti",
            reason=None,
            steps=tuple(self._steps),
            host=host,
            device=tuple(self._device),
        )

    def _completed(self, activities: Iterable[Any]) -> None:
        """Takes over the records of a buffer, which are gone when this returns."""
        try:
            for activity in activities:
                span = self._span(activity)
                if isinstance(span, HostSpan):
                    self._host.append(span)
                elif span is not None:
                    self._device.append(span)
        except Exception as error:  # CUPTI's thread would swallow it
            self._errors.append(error)

    def _span(self, activity: Any) -> HostSpan | DeviceSpan | None:
        kinds, origin_ns = self._kinds, self._origin_ns
        if activity.kind == kinds["RUNTIME"]:
            name = function_name(self._cupti.runtime_api_trace_cbid, activity.cbid)
            return host_span(activity, name, origin_ns)
        if activity.kind == kinds["DRIVER"]:
            name = function_name(self._cupti.driver_api_trace_cbid, activity.cbid)
            return host_span(activity, name, origin_ns)
        if activity.kind == kinds["CONCURRENT_KERNEL"]:
            name = str(activity.name)
            return device_span(activity, name, kernel_kind(name), origin_ns)
        if activity.kind == kinds["MEMSET"]:
            return device_span(activity, "Memset", "memset", origin_ns)
        if activity.kind in (kinds["MEMCPY"], kinds["MEMCPY2"]):
            copied = self._cupti.ActivityMemcpyKind(activity.copy_kind).name
            return device_span(activity, f"Memcpy {copied}", "memcpy", origin_ns)
        return None


def _is_timed(span: HostSpan | DeviceSpan) -> bool:
    """CUPTI writes 0 for a time that it does not have."""
    return span.begin_us >= 0 and span.duration_us >= 0


@cache
def function_name(functions: Any, number: int) -> str:
    """The name of a driver's or runtime's function, as a program calls it."""
    try:
        return plain_name(functions(number).name)
    except ValueError:
        # Of a newer driver than the bindings.
        return f"{functions.__name__} {number}"


def host_span(activity: Any, name: str, origin_ns: int) -> HostSpan:
    """A call from its record, times in ns there."""
    return HostSpan(
        name,
        (activity.start - origin_ns) / 1e3,
        (activity.end - activity.start) / 1e3,
        host_kind(name),
        activity.thread_id,
        activity.correlation_id,
    )


def device_span(activity: Any, name: str, kind: str, origin_ns: int) -> DeviceSpan:
    """Work of a device from its record, times in ns there; a node's id is 0 outside graphs."""
    return DeviceSpan(
        name,
        (activity.start - origin_ns) / 1e3,
        (activity.end - activity.start) / 1e3,
        kind,
        activity.device_id,
        activity.stream_id,
        activity.correlation_id,
        activity.graph_node_id or None,
    )
