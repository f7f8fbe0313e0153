"""Figures of a trace, against answers worked out by hand; whether it shows the timed program; its drawing."""

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from parity import traced
from parity.speed import intervals, nodes, perfetto, provenance, tracing
from parity.speed.figures import TimePass, side_speed
from parity.speed.spans import Parted, outer_launches
from spec import record, trace
from spec.errors import RuleError
from spec.job import Job
from spec.measure import FIGURES
from spec.presets import run_spec
from spec.run import Execution
from spec.trace import DeviceSpan, HostSpan, Program, TracedStep
from tests.parity.conftest import ROOT
from tests.parity.traced import DEVICE, HOST, PROGRAM, TRACE


def test_intervals_by_hand() -> None:
    assert intervals.union([(5, 7), (0, 2), (1, 3), (3, 4), (6, 6)]) == [(0, 4), (5, 7)]
    assert intervals.length([(0, 2), (1, 3), (10, 11)]) == 4
    assert intervals.within([(0, 5), (6, 9), (20, 21)], 4, 7) == [(4, 5), (6, 7)]
    assert intervals.gaps([(0, 2), (5, 6), (1, 3), (9, 10)]) == [2, 3]
    whole = [(0.0, 10.0), (20.0, 30.0)]
    assert intervals.without(whole, [(-5, 1), (3, 4), (8, 22), (29, 40)]) == [(1, 3), (4, 8), (22, 29)]
    assert intervals.without(whole, []) == whole
    assert intervals.without(whole, [(0, 30)]) == []


def test_a_call_inside_a_launch_of_its_thread_is_that_launch() -> None:
    outer = outer_launches(HOST)
    assert outer[3] is HOST[2] and outer[6] is HOST[5]
    assert outer[4] is HOST[4], "another thread's call at the same time is one of its own"
    assert 1 not in outer, "waiting launches nothing"


def test_calls_and_kernels_by_hand() -> None:
    found = tracing.figures(TRACE)
    assert found.steps == 2
    assert found.launch_calls_per_step == 2.0
    assert found.launch_calls_by_api == {"cudaGraphLaunch": 1.0, "cudaMemcpyAsync": 1.0}
    assert found.launch_api_us_per_step == (8 + 2 + 6 + 2) / 2
    assert found.kernels_per_step == 3.0
    assert found.step_ms == pytest.approx(0.1)


def test_graphs_that_are_changed_before_a_launch_by_hand() -> None:
    found = tracing.figures(TRACE)
    assert (found.graph_updates_per_step, found.graph_update_calls_by_api) == (0.0, {})
    changes = (
        # In step 6 two calls before its graph, the driver's inside one of them; in step 7 on another thread.
        HostSpan("cudaGraphExecKernelNodeSetParams", 101, 3, "other", 1),
        HostSpan("cuGraphExecKernelNodeSetParams", 102, 1, "other", 1),
        HostSpan("cudaGraphExecUpdate", 105, 1, "other", 1),
        HostSpan("cudaGraphExecUpdate", 201, 1, "other", 2),
        # A description is no graph that is launched.
        HostSpan("cuGraphKernelNodeSetParams", 202, 1, "other", 1),
    )
    found = tracing.figures(dataclasses.replace(TRACE, host=HOST + changes))
    assert found.graph_updates_per_step == 0.5
    assert found.graph_update_calls_by_api == {
        "cudaGraphExecKernelNodeSetParams": 0.5,
        "cudaGraphExecUpdate": 0.5,
    }


@pytest.mark.parametrize(
    ("recorded", "updates", "calls"),
    [
        ("micro_1/015_torch_trace_graph+inductor", 0.0, {}),
        ("micro_1/018_torch_trace_baseline-reduce-overhead", 0.0, {}),
        ("micro_1/019_jax_trace_jit-concurrent", 1.0, {"cuGraphExecKernelNodeSetParams": 1.0}),
        ("micro_1/020_jax_trace_jit-off", 0.0, {}),
        ("micro_1/021_jax_trace_baseline-jit", 1.0, {"cuGraphExecKernelNodeSetParams": 3.0}),
        # Two command buffers, the reduction between them.
        ("micro_2/013_jax_trace_jit-concurrent", 2.0, {"cuGraphExecKernelNodeSetParams": 22 / 6}),
    ],
)
def test_updates_are_counted_in_traces_of_an_h200(
    tmp_path: Path, recorded: str, updates: float, calls: dict[str, float]
) -> None:
    """XLA changes the nodes whose addresses moved: what a step gives back lies elsewhere each time."""
    packed = ROOT / "benchmarks/results/bench_h200/traces" / f"{recorded}.trace.json.gz"
    (tmp_path / trace.FILE).write_bytes(gzip.decompress(packed.read_bytes()))
    found = tracing.figures(trace.read(tmp_path))
    assert (found.graph_updates_per_step, found.graph_update_calls_by_api) == (updates, calls)


def test_an_instrument_that_keeps_some_calls_counts_no_updates() -> None:
    found = tracing.figures(dataclasses.replace(TRACE, instrument="kineto", reason="no CUPTI"))
    assert found.graph_updates_per_step is None and found.graph_update_calls_by_api is None
    assert "CUPTI alone" in found.reasons["graph_updates_per_step"]


def test_device_time_by_hand() -> None:
    found = tracing.figures(TRACE)
    # Either step: 50 us of kernels that overlap, 2 of the memset, 5 of the copy.
    assert found.device_busy_ms == pytest.approx(0.057)
    # From 120, the first work of step 6, to 275, the end of step 7's last.
    assert found.device_idle_share == pytest.approx(41 / 155)
    gap = found.gap_us
    assert gap is not None
    # 2, 6 and 25 us in and after step 6, 2 and 6 in step 7.
    assert (gap.n, gap.per_step, gap.p50, gap.max) == (5, 2.5, 6, 25)
    assert gap.p90 == pytest.approx(17.4)
    assert gap.share == pytest.approx(41 / 155)


def test_exposed_communication_by_hand() -> None:
    # 150 to 170 in step 6, 250 to 260 in step 7.
    assert tracing.figures(TRACE).exposed_communication_ms == pytest.approx(0.015)
    alone = tuple(span for span in DEVICE if span.kind != "collective")
    found = tracing.figures(dataclasses.replace(TRACE, device=alone))
    assert found.exposed_communication_ms is None
    assert "no collective" in found.reasons["exposed_communication_ms"]


def test_latency_is_of_calls_on_an_idle_device() -> None:
    # After the first step, graphs at 110 and 205 begin at 120 and 210; copies wait behind them.
    latency = tracing.figures(TRACE).launch_latency_us
    assert latency is not None
    assert (latency.n, latency.p50, latency.max) == (2, 7.5, 10)


def test_work_without_a_known_launch_counts_by_time_and_has_no_latency() -> None:
    unknown = tuple(dataclasses.replace(span, correlation=None) for span in DEVICE)
    found = tracing.figures(dataclasses.replace(TRACE, device=unknown))
    assert (found.kernels_per_step, found.device_busy_ms) == (3.0, pytest.approx(0.057))
    assert found.launch_latency_us is None
    assert "11 device spans" in found.reasons["launch_latency_us"]


def test_a_device_behind_its_host_is_read_by_cause() -> None:
    late = tuple(dataclasses.replace(span, begin_us=span.begin_us + 500) for span in DEVICE)
    parted = Parted(dataclasses.replace(TRACE, device=late))
    assert [len(step.work) for step in parted.steps] == [1, 5, 5]


def test_a_launch_of_several_steps_is_shared_out() -> None:
    marks = (TracedStep(0, 0, 40), TracedStep(4, 100, 140), TracedStep(8, 200, 240))
    found, one = tracing.figures(dataclasses.replace(TRACE, steps=marks)), tracing.figures(TRACE)
    assert found.steps == 8
    assert found.launch_calls_per_step == 0.5
    assert found.device_busy_ms == pytest.approx(0.057 / 4)
    assert found.device_idle_share == one.device_idle_share


def test_a_cpu_has_reasons_for_every_figure_of_a_device() -> None:
    host = (HostSpan("aten::mm", 1, 2, "other", 1),)
    found = tracing.figures(dataclasses.replace(TRACE, host=host, device=(), device_name="cpu"))
    assert {name for name in tracing.FIGURES if getattr(found, name) is None} == set(tracing.FIGURES)
    assert set(found.reasons) == set(tracing.FIGURES) <= FIGURES.keys()


def graph(**nodes: int) -> dict[str, Any]:
    return {"graphs": [{"nodes_by_kind": nodes, "launches_per_step": 2}]}


def test_a_graph_is_matched_node_kind_by_node_kind() -> None:
    steps = Parted(TRACE).settled
    rows, reason = nodes.match("torch", graph(kernel=3, memset=1, event_record=2), steps)
    assert [(row.kind, row.recorded, row.traced, row.agree) for row in rows] == [
        ("graph launches", 1, 1.0, True),
        ("launches", 2, 2.0, True),
        ("kernel nodes", 3, 3.0, None),
        ("memset nodes", 1, 1.0, None),
        ("timed nodes", 4, 4.0, True),
    ]
    assert reason == ""
    rows, _ = nodes.match("torch", graph(kernel=4), steps)
    assert [row.agree for row in rows] == [True, True, False]
    # Where the driver ran the memset as a kernel.
    rows, _ = nodes.match("torch", graph(kernel=2, memset=2), steps)
    assert [row.agree for row in rows] == [True, True, None, None, True]
    assert nodes.match("torch", None, steps)[1]


def test_a_program_is_matched_by_its_command_buffers() -> None:
    ledger = {"command_buffers": 2, "thunks_in": 4, "host_loops": 0, "launches": 3}
    rows, _ = nodes.match("jax", {"command_buffers": ledger}, Parted(TRACE).settled)
    assert [(row.kind, row.traced, row.agree) for row in rows] == [
        ("graph launches", 1.0, False),
        ("work in graphs, thunks", 4.0, None),
        ("launches, thunks", 2.0, None),
    ]


def test_a_trace_tells_of_the_timed_step_only_where_it_ran_the_same() -> None:
    assert provenance.compare(PROGRAM, [PROGRAM]).refusal == ""
    other = Program("q" * 64, PROGRAM.end_state_sha256)
    assert "another program" in provenance.compare(other, [PROGRAM, PROGRAM]).refusal
    strayed = Program(PROGRAM.sha256, "t" * 64)
    assert "another state" in provenance.compare(strayed, [PROGRAM, PROGRAM]).refusal
    # Timed passes that differ among themselves cannot be told from it by their last bits.
    loose = provenance.compare(strayed, [PROGRAM, Program(PROGRAM.sha256, "u" * 64)])
    assert loose.refusal == "" and "among themselves" in loose.note


def a_pass(folder: Path, purpose: str, compiled: str = "abc", state: str = "0", mode: str = "graph") -> Path:
    """The parts of a pass that its figures are read from."""
    spec = run_spec("toy-mlp", execution=Execution(device="cuda", torch_mode="graph", jax_mode="jit"))
    job = Job(side="torch", purpose=purpose, spec=spec, mode=mode, steps=9, out=str(folder))
    manifest = {
        "side": "torch",
        "mode_ran": mode,
        "facts": {"compiler_options": {}},
        "capture": graph(kernel=3) | {"program_sha256": compiled},
        "reasons": {},
        "compile_s": None,
    }
    job.write()
    record.write_json(folder / "manifest.json", manifest)
    record.write_json(folder / "digest.rank0.json", {"step": 9, "param": state})
    record.write_json(folder / "done.json", {"seconds": 1.0})
    return folder


def speed_of(tmp_path: Path, **traced: str) -> Any:
    timed = a_pass(tmp_path / "001_torch_time", "time")
    folder = a_pass(tmp_path / "002_torch_trace", "trace", **traced)
    trace.write(dataclasses.replace(TRACE, program=trace.program_of(folder)), folder)
    return side_speed([TimePass(timed)])


def test_a_side_has_the_figures_of_its_trace(tmp_path: Path) -> None:
    speed = speed_of(tmp_path)
    assert speed.kernels_per_step == 3.0
    assert speed.trace.same_program and speed.trace.same_end_state
    assert speed.trace.nodes[2].agree
    assert not set(tracing.FIGURES) & speed.reasons.keys()


@pytest.mark.parametrize("strayed", [{"compiled": "abd"}, {"state": "1"}])
def test_a_trace_of_something_else_fills_no_figure(tmp_path: Path, strayed: dict[str, str]) -> None:
    speed = speed_of(tmp_path, **strayed)
    assert {getattr(speed, name) for name in tracing.FIGURES} == {None}
    assert all("the traced pass" in speed.reasons[name] for name in tracing.FIGURES)
    assert speed.trace is not None


def test_a_trace_of_another_mode_is_not_this_one_s(tmp_path: Path) -> None:
    speed = speed_of(tmp_path, mode="eager")
    assert speed.trace is None
    assert all("--trace" in speed.reasons[name] for name in tracing.FIGURES)


def test_a_trace_belongs_to_the_call_that_made_it(tmp_path: Path) -> None:
    """Two calls of a benchmark time the same step, and the first traces it too; or the second does."""
    assert speed_of(tmp_path).trace is not None
    second = a_pass(tmp_path / "003_torch_time", "time")
    assert side_speed([TimePass(second)]).trace is None  # type: ignore[union-attr]
    folder = a_pass(tmp_path / "004_torch_trace", "trace")
    trace.write(dataclasses.replace(TRACE, program=trace.program_of(folder)), folder)
    for number, own in ((1, "002_torch_trace"), (3, "004_torch_trace")):
        speed = side_speed([TimePass(tmp_path / f"00{number}_torch_time")])
        assert speed is not None and speed.trace is not None and speed.trace.folder == own


def test_a_trace_without_timing_is_refused() -> None:
    with pytest.raises(RuleError, match="--no-time"):
        traced.check(traced=True, timed=False)
    traced.check(traced=False, timed=False)


def test_a_drawing_has_every_span_on_a_named_line_and_an_arrow_a_launch(tmp_path: Path) -> None:
    perfetto.write(TRACE, tmp_path, "torch graph")
    events = json.loads((tmp_path / perfetto.FILE).read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == len(TRACE.steps) + len(HOST) + len(DEVICE)
    lines = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {lines[event["pid"], event["tid"]] for event in spans} == set(lines.values())
    starts = [event for event in events if event["ph"] == "s"]
    ends = [event for event in events if event["ph"] == "f"]
    assert len(starts) == len(ends) == 5, "a call inside a launch has no arrow of its own"
    hosts = {event["pid"] for event in spans if event["name"].startswith("step")}
    assert max(hosts) < min(event["pid"] for event in ends), "host above, device below"


def test_work_of_another_device_is_left_out() -> None:
    other = DeviceSpan("gemm", 0, 1000, "kernel", 1, 7, 3)
    assert tracing.figures(dataclasses.replace(TRACE, device=(*DEVICE, other))) == tracing.figures(TRACE)
