"""Timelines of the page: lanes in order, windows where something happens, every lane that has a span."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from parity.report.page.folder import RunFolder
from parity.report.page.timeline import Timeline
from parity.report.page.timeline import section as timelines
from spec.trace import DeviceSpan, HostSpan, Program, Trace, TracedStep
from tests.parity import trace_writer


def drawn(folder: Path, *passes: tuple[str, str, Trace]) -> list[Timeline]:
    for number, (side, mode, content) in enumerate(passes):
        trace_writer.write_pass(folder, 21 + number, side, mode, content)
    return timelines(RunFolder(folder)).timelines


def copies_before_kernels() -> Trace:
    """Copies, a long while without a call, forty kernels at once, a wait, and what another thread does."""
    host = [HostSpan("cudaMemcpyAsync", 10.0 * index, 5.0, "launch", 1, index) for index in range(3)]
    device = [DeviceSpan("Memcpy", 10.0 * index + 6.0, 1.0, "memcpy", 0, 7, index) for index in range(3)]
    for index in range(40):
        at = 5000.0 + 10.0 * index
        host.append(HostSpan("cudaLaunchKernel", at, 5.0, "launch", 1, 10 + index))
        device.append(DeviceSpan("k", at + 6.0, 2.0, "kernel", 0, 7, 10 + index))
    host += [
        HostSpan("cudaStreamSynchronize", 9000.0, 5.0, "sync", 1),
        HostSpan("cudaGetDevice", 9400.0, 1.0, "other", 2),
    ]
    return Trace(
        steps=(TracedStep(0, 0.0, 9500.0),), host=tuple(host), device=tuple(device), instrument="cupti",
        reason=None, device_name="a GPU that was never there", program=Program(None, None),
    )  # fmt: skip


def test_lanes_are_the_host_then_the_device_then_communication(tmp_path: Path) -> None:
    shown = drawn(
        tmp_path,
        ("torch", "baseline:eager", trace_writer.launched_one_by_one()),
        ("torch", "graph", trace_writer.launched_as_a_graph()),
        ("jax", "jit", trace_writer.operations_on_a_cpu()),
    )
    eager, graph, cpu = (one.step for one in shown)
    assert [lane.label for lane in eager.lanes] == [
        "host, launches",
        "host, waits",
        "device, stream 7, kernels",
        "device, stream 7, fills",
    ]
    assert graph.lanes[-1].label == "device, stream 20, communication"
    assert [len(lane.spans) for lane in cpu.lanes] == [1], "an operation inside another is left out"
    busy = {
        step.label: step.lanes[-2].busy_us(0.0, step.length_us) / step.length_us for step in (eager, graph)
    }
    kernels = trace_writer.KERNELS - trace_writer.KERNELS // 40
    assert eager.length_us == trace_writer.KERNELS * trace_writer.CALL_US + 100.0
    found = eager.lanes[2].busy_us(0.0, eager.length_us)
    assert found == pytest.approx(kernels * trace_writer.KERNEL_US), busy
    assert graph.lanes[1].busy_us(0.0, graph.length_us) / graph.length_us > 0.8
    widths = [one.window[1] - one.window[0] for one in shown]
    assert widths == pytest.approx([widths[0]] * 3), "details have one scale"


def test_the_detail_begins_where_kernels_run(tmp_path: Path) -> None:
    (shown,) = drawn(tmp_path, ("torch", "baseline:eager", copies_before_kernels()))
    begin, end = shown.window
    assert 4900.0 < begin < 5000.0 < end < 9000.0


def test_the_detail_shows_the_lanes_that_have_something_in_its_window(tmp_path: Path) -> None:
    (shown,) = drawn(tmp_path, ("torch", "baseline:eager", copies_before_kernels()))
    root = ElementTree.fromstring(shown.detail.wide)
    rows = [one for one in root.iter("g") if one.get("class") == "row"]
    visible = [one for one in rows if one.get("display") is None]
    assert len(rows) == len(shown.step.lanes) == 5, "the script can show them all"
    names = [one.findtext("text") for one in visible]
    assert names == ["host, launches of thread 1", "device, stream 7, kernels"]
    places = [one.get("transform") for one in visible]
    assert places == ["translate(0 0)", "translate(0 43)"], "one below the other, without a hole"
    assert root.get("viewBox") == "0 0 920 126"


def test_a_little_is_not_nothing(tmp_path: Path) -> None:
    (shown,) = drawn(tmp_path, ("torch", "baseline:eager", copies_before_kernels()))
    assert "host, waits of thread 1: less than 1% of the step" in shown.overview.wide
