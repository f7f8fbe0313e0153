"""A trace is read as it was written, and one that nobody could count is refused."""

import dataclasses
import json
from pathlib import Path

import pytest

from spec import trace
from spec.errors import RuleError
from spec.trace import DeviceSpan, HostSpan, Program, Trace, TracedStep

TRACE = Trace(
    steps=(TracedStep(5, 0.0, 10.5), TracedStep(6, 11.0, 20.25)),
    host=(
        HostSpan("cudaLaunchKernel", 1.0, 2.5, "launch", 77, 901),
        HostSpan("cudaStreamSynchronize", 4.0, 3.0, "sync", 77),
        HostSpan("cudaLaunchKernel", 12.0, 2.0, "launch", 78, 902),
    ),
    device=(
        DeviceSpan("gemm", 3.001, 5.0, "kernel", 0, 7, 901, 3),
        DeviceSpan("ncclAllReduce", 8.001, 5.0, "collective", 0, 8, 901, 4),
        DeviceSpan("Memset", 14.0, 0.5, "memset", 0, 7, 902),
    ),
    instrument="cupti",
    reason=None,
    device_name="NVIDIA H200",
    program=Program("ab" * 32, "cd" * 32),
)


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    trace.write(TRACE, tmp_path)
    assert trace.read(tmp_path) == TRACE
    stored = json.loads((tmp_path / trace.FILE).read_text())
    assert stored["host"]["names"] == ["cudaLaunchKernel", "cudaStreamSynchronize"]
    assert stored["host"]["spans"][2] == [0, 12.0, 2.0, "launch", 78, 902]
    assert stored["device"]["spans"][0] == [0, 3.001, 5.0, "kernel", 0, 7, 901, 3]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"instrument": "stopwatch"}, "stopwatch"),
        ({"host": (HostSpan("f", 0.0, 1.0, "call", 1),)}, "call"),
        ({"device": (DeviceSpan("f", 0.0, 1.0, "graph", 0, 0),)}, "graph"),
        ({"device": (DeviceSpan("f", 0.0, -1.0, "kernel", 0, 0),)}, "-1.0"),
        ({"host": (HostSpan("f", float("nan"), 1.0, "sync", 1),)}, "nan"),
        ({"steps": (TracedStep(0, 5.0, 9.0), TracedStep(1, 8.0, 12.0))}, "step 1"),
        ({"steps": (TracedStep(0, 5.0, 4.0),)}, "step 0"),
    ],
)
def test_what_nobody_could_count_is_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(RuleError, match=named):
        dataclasses.replace(TRACE, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "damage", ['{"schema_version": 2}', "{}", '{"schema_version": 1, "steps": [{}]}', "{"]
)
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    (tmp_path / trace.FILE).write_text(damage)
    with pytest.raises(RuleError, match=r"trace\.json"):
        trace.read(tmp_path)
    with pytest.raises(RuleError, match="elsewhere"):
        trace.read(tmp_path / "elsewhere")
