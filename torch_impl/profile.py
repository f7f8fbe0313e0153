"""Kineto, torch's own profiler, as the instrument of a `trace` job where CUPTI itself cannot be had.

It sees operations of the framework too, and slows the host more than CUPTI alone. Must not: be loaded by a
job that does not trace. Counterpart: `jax_impl/profile.py`.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from spec.trace import DeviceSpan, HostSpan, TracedStep
from spec.worker.tracing import Found, host_kind, kernel_kind

_MARK = "parity_step "
_DEVICE_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_HOST = ("cpu_op", "cuda_runtime", "cuda_driver")


class Profiler:
    """A `spec.worker.tracing.Instrument`.

    Args:
      reason: why it is not CUPTI.
    """

    def __init__(self, reason: str) -> None:
        on_gpu = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
        self._reason, self._profile = reason, profile(activities=[ProfilerActivity.CPU, *on_gpu])

    def start(self) -> None:
        """From here on; the device is idle."""
        self._profile.start()

    def step(self, number: int) -> AbstractContextManager[Any]:
        """Around the call of one step."""
        return record_function(f"{_MARK}{number}")

    def stop(self) -> Found:
        """What was seen until now; the device is idle again."""
        self._profile.stop()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            self._profile.export_chrome_trace(str(file))
            events = json.loads(file.read_text())["traceEvents"]
        return found(events, self._reason)


def found(recorded: list[dict[str, Any]], reason: str) -> Found:
    """The spans of a Chrome trace's events, whose times are in us already."""
    whole = [event for event in recorded if event.get("ph") == "X" and "dur" in event]
    return Found(
        instrument="kineto",
        reason=reason,
        steps=tuple(sorted(_steps(whole), key=lambda step: step.begin_us)),
        host=tuple(_host(whole)),
        device=tuple(_device(whole)),
    )


def _steps(events: list[dict[str, Any]]) -> Iterator[TracedStep]:
    for event in events:
        if event.get("cat") == "user_annotation" and event["name"].startswith(_MARK):
            number = int(event["name"].removeprefix(_MARK))
            yield TracedStep(number, event["ts"], event["ts"] + event["dur"])


def _host(events: list[dict[str, Any]]) -> Iterator[HostSpan]:
    for event in events:
        if (kind := event.get("cat")) in _HOST:
            name = str(event["name"])
            yield HostSpan(
                name,
                event["ts"],
                event["dur"],
                "other" if kind == "cpu_op" else host_kind(name),
                int(event["tid"]),
                event.get("args", {}).get("correlation"),
            )


def _device(events: list[dict[str, Any]]) -> Iterator[DeviceSpan]:
    for event in events:
        if (kind := _DEVICE_KINDS.get(event.get("cat", ""))) is not None:
            name, told = str(event["name"]), event["args"]
            yield DeviceSpan(
                name,
                event["ts"],
                event["dur"],
                kernel_kind(name) if kind == "kernel" else kind,
                int(told["device"]),
                int(told["stream"]),
                told.get("correlation"),
                # Kineto writes 0 for what ran outside a graph.
                told.get("graph node id") or None,
            )
