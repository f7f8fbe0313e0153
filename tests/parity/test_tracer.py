"""The tracer's command line, and CUPTI's records as spans, on a stand-in that has cupti-python's names."""

import ctypes
import enum
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parity.cluster import Cluster
from parity.commands import side_commands
from parity.tracer import __main__ as tracer
from parity.tracer.collection import Cupti
from spec.errors import RuleError
from spec.jit import TUNED
from spec.trace import DeviceSpan, HostSpan
from spec.worker import tracing


def test_the_module_and_its_arguments_are_found() -> None:
    assert tracer.split(["-m", "torch_impl", "work", "a", "-m"]) == ({0}, "torch_impl", ["work", "a", "-m"])
    assert tracer.split(["--ranks", "0,3", "--", "-m", "jax_impl"]) == ({0, 3}, "jax_impl", [])
    for wrong in ([], ["torch_impl"], ["--ranks", "x", "-m", "a"], ["-m"]):
        with pytest.raises(RuleError, match="--ranks"):
            tracer.split(wrong)


def test_a_side_is_started_by_the_tracer_inside_its_launcher(tmp_path: Any) -> None:
    plain, traced = [
        side_commands("torch", [tmp_path], "cuda", 2, Cluster(), traced)[0].argv for traced in (False, True)
    ]
    at = traced.index("parity.tracer")
    assert traced[at - 1 : at + 2] == ["-m", "parity.tracer", "-m"]
    assert [*traced[:at], *traced[at + 2 :]][-3:] == plain[-3:]


def test_programs_of_a_run_take_the_same_kernels(tmp_path: Path) -> None:
    (jax,) = side_commands("jax", [tmp_path], "cuda", 1, Cluster(), tuned=tmp_path / "tuned")
    assert jax.environ[TUNED] == str(tmp_path / "tuned")
    for side, device in (("torch", "cuda"), ("jax", "cpu")):
        (other,) = side_commands(side, [tmp_path], device, 1, Cluster(), tuned=tmp_path / "tuned")
        assert TUNED not in other.environ


def test_a_module_runs_as_under_python_m() -> None:
    environ = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    line = [sys.executable, "-m", "parity.tracer", "-m", "json.tool", "--help"]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "--json-lines" in done.stdout, done.stderr


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is offered before or after the test."""
    monkeypatch.setattr(tracing, "_offered", [])
    monkeypatch.setattr(tracing, "_refusals", [])
    for name in ("RANK", "JAX_PROCESS_ID"):
        monkeypatch.delenv(name, raising=False)


def own(reason: str) -> Any:
    return reason


@pytest.mark.usefixtures("offered")
def test_a_side_alone_takes_its_own_profiler_on_rank_0() -> None:
    assert tracing.instrument(0, own) == tracing.NOT_STARTED
    assert isinstance(tracing.instrument(1, own), tracing.Untraced)


@pytest.mark.usefixtures("offered")
def test_without_a_gpu_the_reason_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    tracer.attach({0})
    assert "this process has none" in str(tracing.instrument(0, own))


@pytest.mark.usefixtures("offered")
def test_a_rank_that_is_not_named_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    tracer.attach({0})
    assert isinstance(tracing.instrument(1, own), tracing.Untraced)
    assert tracing.instrument(1, own).stop() is None


EPOCH_NS = 1_796_010_201_251_350_835
"""What CUPTI's clock said at some time, odd so that a double cannot hold it: it counts from 1970."""
Kinds = enum.IntEnum("Kinds", "RUNTIME DRIVER CONCURRENT_KERNEL MEMCPY MEMCPY2 MEMSET OVERHEAD")


class StandIn:
    """What `Cupti` asks of cupti-python 13.0: names, arguments and records are those of its stubs."""

    def __init__(self, records: list[Any], dropped: int = 0) -> None:
        self.ActivityKind = Kinds
        self.ActivityMemcpyKind = enum.IntEnum("Copies", {"HTOD": 1})
        self.runtime_api_trace_cbid = enum.IntEnum("Runtime", {"cudaLaunchKernel_ptsz_v7000": 211})
        self.driver_api_trace_cbid = enum.IntEnum("Driver", {"cuLaunchKernelEx": 652})
        self.enabled: set[int] = set()
        self._records, self._dropped = records, dropped
        self.rewind()
        self._completed: Callable[[list[Any]], None]

    def rewind(self) -> None:
        """Sets the clock back: the records are of fixed times."""
        self._now = EPOCH_NS - 1000

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        size, most = requested()
        assert size > 1 << 20 and most == 0
        self._completed = completed

    def get_timestamp(self) -> int:
        self._now += 1000
        return self._now

    def activity_enable(self, kind: int) -> None:
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def activity_flush_all(self, flag: int) -> None:
        assert flag == 1 and not self.enabled, "what is still collected after the last flush is never read"
        self._completed(self._records)

    def activity_get_num_dropped_records(self, context: int, stream: int, pointer: int) -> None:
        ctypes.c_size_t.from_address(pointer).value = self._dropped


def device(kind: int, **more: Any) -> SimpleNamespace:
    told = {
        "start": EPOCH_NS + 5001,
        "end": EPOCH_NS + 7502,
        "device_id": 0,
        "stream_id": 7,
        "correlation_id": 3,
    }
    return SimpleNamespace(kind=kind, graph_node_id=0, **told | more)


def call(kind: int, cbid: int, **more: int) -> SimpleNamespace:
    told = {"start": EPOCH_NS + 1003, "end": EPOCH_NS + 3003, "thread_id": 9, "correlation_id": 3}
    return SimpleNamespace(kind=kind, cbid=cbid, **told | more)


def records() -> list[Any]:
    kernel = device(Kinds.CONCURRENT_KERNEL, name="gemm")
    kernel.graph_node_id = 12
    return [
        call(Kinds.RUNTIME, 211),
        call(Kinds.DRIVER, 652),
        call(Kinds.DRIVER, 9999),
        call(Kinds.DRIVER, 9999, end=0),
        kernel,
        device(Kinds.CONCURRENT_KERNEL, name="ncclDevKernel_AllReduce"),
        device(Kinds.MEMCPY, copy_kind=1),
        device(Kinds.MEMSET),
        SimpleNamespace(kind=Kinds.OVERHEAD),
    ]


def session(monkeypatch: pytest.MonkeyPatch, stand_in: StandIn) -> Cupti:
    package = types.ModuleType("cupti")
    package.cupti = stand_in  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupti", package)
    return Cupti()


def test_records_become_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn(records())
    cupti = session(monkeypatch, stand_in)
    assert not stand_in.enabled, "nothing is collected before the traced steps"
    cupti.start()
    with cupti.step(5):
        pass
    found = cupti.stop()
    assert not stand_in.enabled
    assert (found.steps[0].number, found.steps[0].begin_us, found.steps[0].end_us) == (5, 1.0, 2.0)
    assert found.host == (
        HostSpan("cudaLaunchKernel", 1.003, 2.0, "launch", 9, 3),
        HostSpan("cuLaunchKernelEx", 1.003, 2.0, "launch", 9, 3),
        HostSpan("Driver 9999", 1.003, 2.0, "other", 9, 3),
    )
    assert found.device == (
        DeviceSpan("gemm", 5.001, 2.501, "kernel", 0, 7, 3, 12),
        DeviceSpan("ncclDevKernel_AllReduce", 5.001, 2.501, "collective", 0, 7, 3),
        DeviceSpan("Memcpy HTOD", 5.001, 2.501, "memcpy", 0, 7, 3),
        DeviceSpan("Memset", 5.001, 2.501, "memset", 0, 7, 3),
    )


def test_a_second_job_of_the_process_has_its_own_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn(records())
    cupti, found = session(monkeypatch, stand_in), []
    for number in (5, 8):
        stand_in.rewind()
        cupti.start()
        with cupti.step(number):
            pass
        found.append(cupti.stop())
    assert [[step.number for step in one.steps] for one in found] == [[5], [8]]
    assert [(len(one.host), len(one.device)) for one in found] == [(3, 4), (3, 4)]


UNREADABLE = call(Kinds.MEMCPY, 1)
UNTIMED = device(Kinds.MEMSET, start=0, end=0)
LAUNCHING = call(Kinds.RUNTIME, 211, end=0)


@pytest.mark.parametrize(
    "lost", [{"dropped": 3}, *({"records": [r]} for r in (UNREADABLE, UNTIMED, LAUNCHING))]
)
def test_lost_records_are_a_failure(monkeypatch: pytest.MonkeyPatch, lost: dict[str, Any]) -> None:
    cupti = session(monkeypatch, StandIn(lost.get("records", []), lost.get("dropped", 0)))
    cupti.start()
    with pytest.raises(tracing.TraceFailed, match=r"3 dropped|1 without times|1 buffers unread"):
        cupti.stop()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernelExC", "launch"),
        ("cuGraphLaunch", "launch"),
        ("cuMemcpyHtoDAsync", "launch"),
        ("cudaMemsetAsync", "launch"),
        ("cudaLaunchHostFunc", "other"),
        ("cudaGraphAddMemsetNode", "other"),
        ("cudaStreamWaitEvent", "other"),
        ("cudaEventSynchronize", "sync"),
        ("Memcpy HTOD", "other"),
    ],
)
def test_calls_are_told_apart_by_name(name: str, kind: str) -> None:
    assert tracing.host_kind(name) == kind
    for version in ("_v10000", "_ptsz", "_ptsz_v7000", "_v2_ptsz"):
        assert tracing.plain_name(name + version) == name
