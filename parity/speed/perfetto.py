"""A trace as a file that ui.perfetto.dev and chrome://tracing open: host threads above, device streams below.

It is the old JSON form of Chrome's trace events, which both still read. Must not: count.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parity.speed.spans import Parted
from spec import record
from spec.trace import Trace

FILE = "trace.perfetto.json"

_HOST, _DEVICE = 1, 2
_STEPS = 0
"""The host's first line; threads are numbered from 1."""


def write(trace: Trace, folder: Path, title: str) -> Path:
    """Writes `trace.perfetto.json` beside a trace; returns its path."""
    content = {"displayTimeUnit": "ms", "traceEvents": list(_events(trace, title))}
    path = folder / FILE
    record.write_text(path, json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n")
    return path


def _events(trace: Trace, title: str) -> Iterator[dict[str, Any]]:
    threads = {thread: i for i, thread in enumerate(dict.fromkeys(s.thread for s in trace.host), start=1)}
    streams = {place: i for i, place in enumerate(sorted({(s.device, s.stream) for s in trace.device}))}
    yield from _named(_HOST, f"{title}: host")
    yield _line(_HOST, _STEPS, "steps")
    for thread, line in threads.items():
        yield _line(_HOST, line, f"thread {thread}")
    if streams:
        yield from _named(_DEVICE, f"{title}: {trace.device_name}")
    for (device, stream), line in streams.items():
        yield _line(_DEVICE, line, f"device {device}, stream {stream}")
    for step in trace.steps:
        yield _span(_HOST, _STEPS, f"step {step.number}", step.begin_us, step.end_us - step.begin_us, {})
    for span in trace.host:
        told = {"kind": span.kind, "correlation": span.correlation}
        yield _span(_HOST, threads[span.thread], span.name, span.begin_us, span.duration_us, told)
    for work in trace.device:
        told = {"kind": work.kind, "correlation": work.correlation, "graph_node": work.graph_node}
        line = streams[work.device, work.stream]
        yield _span(_DEVICE, line, work.name, work.begin_us, work.duration_us, told)
    yield from _arrows(trace, threads, streams)


def _arrows(
    trace: Trace, threads: dict[int, int], streams: dict[tuple[int, int], int]
) -> Iterator[dict[str, Any]]:
    """From every launch to the first thing that it caused."""
    for number, launched in enumerate(Parted(trace).launches):
        if not launched.caused:
            continue
        call, first = launched.call, launched.caused[0]
        both = {"name": "launch", "cat": "launch", "id": number}
        yield both | {"ph": "s", "pid": _HOST, "tid": threads[call.thread], "ts": call.begin_us}
        there = {"pid": _DEVICE, "tid": streams[first.device, first.stream], "ts": first.begin_us}
        yield both | {"ph": "f", "bp": "e"} | there


def _named(pid: int, name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}


def _line(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _span(
    pid: int, tid: int, name: str, begin_us: float, duration_us: float, told: dict[str, Any]
) -> dict[str, Any]:
    args = {key: value for key, value in told.items() if value is not None}
    place = {"ph": "X", "pid": pid, "tid": tid, "name": name}
    return place | {"ts": round(begin_us, 3), "dur": round(duration_us, 3), "args": args}
