"""The table of what a step costs: figures with their spreads, and every reason told once."""

from pathlib import Path

import msgspec
import pytest

from parity.report import page
from parity.report.page import costs, glance, words
from parity.report.page.folder import RunFolder
from parity.report.page.speed import section
from parity.report.result import BenchRow, Capture, Result, SideSpeed, Spread
from parity.report.speeds import Invocation, SpeedWarning
from parity.report.traced import Distribution, Gaps, TraceRecord
from parity.speed import tracing
from spec import record
from tests.parity import traced
from tests.parity.page_runs import Page, failed_launch, save, timed

NO_TRACE = "needs a trace, and this run has none that was finished: --trace makes one"


def with_trace(speed: SideSpeed) -> SideSpeed:
    """A side with the figures of the trace that was worked out by hand."""
    found = tracing.figures(traced.TRACE)
    reasons = {name: why for name, why in speed.reasons.items() if name not in (*tracing.FIGURES, "trace")}
    made = TraceRecord(
        folder="021_torch_trace", instrument="cupti", reason=None, device="NVIDIA H200", steps=2,
        step_ms=0.1, same_program=True, same_end_state=True, nodes=[], reasons={},
    )  # fmt: skip
    figures = {name: getattr(found, name) for name in tracing.FIGURES}
    return msgspec.structs.replace(speed, reasons=reasons | found.reasons, trace=made, **figures)


def six(folder: Path, **changes: object) -> Path:
    """A benchmark of six contenders, one of them traced."""
    speed = timed(folder)
    assert speed.torch is not None and speed.jax is not None
    modes = {
        "torch": ["eager", "baseline:eager", "baseline:compile", "baseline:reduce-overhead"],
        "jax": ["jit", "baseline:jit"],
    }
    rows = [
        BenchRow(
            side=side, mode=mode, steps=30, is_own=number == 0,
            ratio_to_own=None if number == 0 else speed.ratio,
            speed=msgspec.structs.replace(getattr(speed, side), mode=mode),
        )
        for side, names in modes.items()
        for number, mode in enumerate(names)
    ]  # fmt: skip
    rows[0].speed = with_trace(rows[0].speed)
    return save(folder, command="bench", speed=speed, bench=rows, **changes)


def table_of(folder: Path) -> costs.Table:
    result = msgspec.json.decode((folder / "result.json").read_bytes(), type=Result)
    (part,) = section(result, RunFolder(folder)).parts
    found = part.table
    assert found is not None
    return found


def cells(table: costs.Table, name: str) -> list[costs.Cell]:
    return next(row.cells for group in table.groups for row in group.rows if row.name == name)


def test_a_figure_is_a_number_with_its_spread() -> None:
    spread = Spread(n=16, median=2.5, p10=2.25, p90=2345.6, mad=0.1)
    assert words.figure("step_ms", spread) == ("2.5", ("2.25 to 2,346,", "n 16"))
    latency = Distribution(n=483, p50=8.757, p90=12.63, max=36.75)
    assert words.figure("launch_latency_us", latency) == (
        "8.757",
        ("90 % up to 12.63,", "max 36.75,", "n 483"),
    )
    gaps = Gaps(n=278, p50=0.256, p90=0.288, max=66.82, per_step=30.9, share=0.44)
    assert words.figure("gap_us", gaps).more[2:] == ("n 278,", "30.9 a step")
    assert words.figure("launch_calls_by_api", {"cudaGraphLaunch": 1.0}) == ("", ("cudaGraphLaunch 1",))
    assert words.figure("graph_update_calls_by_api", {}) == ("0", ())
    assert words.figure("mfu", 0.000112) == ("0.0112 %", ()), "a small share is not none"
    assert words.figure("peak_mem_bytes", 3 * 2**20) == ("3 MiB", ())


def test_distributions_of_a_trace_are_shown(tmp_path: Path) -> None:
    folder = six(tmp_path)
    found = tracing.figures(traced.TRACE)
    assert found.gap_us is not None and found.launch_latency_us is not None
    table = table_of(folder)
    gap, latency = cells(table, "gap_us")[0], cells(table, "launch_latency_us")[0]
    assert gap.told.value == words.amount(found.gap_us.p50) and f"n {found.gap_us.n}," in gap.told.more
    assert latency.told.value == words.amount(found.launch_latency_us.p50)
    assert cells(table, "step_ms while traced")[0].told.value == "0.1"
    read = Page(page.write(folder).read_text("utf-8"))
    assert gap.told.value in read.words and costs.TRACED_TITLE in read.words


def test_updates_of_graphs_stand_beside_what_was_captured(tmp_path: Path) -> None:
    speed = timed(tmp_path)
    assert speed.torch is not None and speed.jax is not None
    speed.jax.graph_updates_per_step = 2.0
    speed.jax.graph_update_calls_by_api = {"cuGraphExecKernelNodeSetParams": 3.0}
    speed.torch.graph_updates_per_step, speed.torch.graph_update_calls_by_api = 0.0, {}
    captured = Capture(torch={"graphs": []}, jax={"command_buffers": {"updates": None}}, reasons={})
    read = Page(page.write(save(tmp_path, speed=speed, capture=captured)).read_text("utf-8"))
    said = "Launches of a graph that was changed since the launch before, as traced: "
    assert f"{said}0 a step." in read.words
    assert f"{said}2 a step (cuGraphExecKernelNodeSetParams 3)." in read.words


def test_reasons_are_told_once_and_cells_point_to_them(tmp_path: Path) -> None:
    folder = six(tmp_path)
    table = table_of(folder)
    assert [cell.reason for cell in cells(table, "kernels_per_step")] == ["", *[NO_TRACE] * 5]
    read = Page(page.write(folder).read_text("utf-8"))
    assert read.words.count(NO_TRACE) == 1
    rows = len(tracing.FIGURES) + 1
    assert read.words.count(str(table.notes[NO_TRACE])) >= 5 * rows, "and the time of a traced step"
    assert list(table.notes.values()) == list(range(1, len(table.notes) + 1))
    pointed = {cell.reason for group in table.groups for row in group.rows for cell in row.cells} - {""}
    assert pointed == set(table.notes), "no note without a cell"


def test_every_figure_is_a_number_or_has_its_reason(tmp_path: Path) -> None:
    table = table_of(six(tmp_path))
    rows = [row for group in table.groups for row in group.rows]
    absent = {name for names in table.missing.values() for name in names}
    assert {row.name for row in rows} | absent >= set(words.FIGURES)
    for row in rows:
        for cell in row.cells:
            assert bool(cell.reason) != bool(cell.told.value or cell.told.more), row.name


def test_a_figure_that_nobody_has_is_no_row(tmp_path: Path) -> None:
    folder = six(tmp_path)
    content = msgspec.json.decode((folder / "result.json").read_bytes(), type=Result)
    for row in content.bench:
        row.speed.mfu = None
        row.speed.reasons["mfu"] = f"no peak on {row.side}"
    (folder / "result.json").write_bytes(msgspec.json.encode(content))
    table = table_of(folder)
    assert "mfu" not in {row.name for group in table.groups for row in group.rows}
    (why,) = (why for why, names in table.missing.items() if "mfu" in names)
    assert why.startswith("torch eager, torch baseline:eager,") and why.endswith(
        "jax baseline:jit: no peak on jax"
    )


def test_a_mode_is_not_part_of_a_note(tmp_path: Path) -> None:
    folder = six(tmp_path)
    content = msgspec.json.decode((folder / "result.json").read_bytes(), type=Result)
    content.bench[0].speed.launch_us = content.bench[0].speed.dispatch_us
    for row in content.bench[1:4]:
        row.speed.launch_us = None
        row.speed.reasons["launch_us"] = f"in mode {row.mode} many calls launch a step"
    (folder / "result.json").write_bytes(msgspec.json.encode(content))
    reasons = {cell.reason for cell in cells(table_of(folder), "launch_us")[1:4]}
    assert reasons == {"in this mode many calls launch a step"}


@pytest.mark.parametrize("ended", ["interrupted", "crashed"])
def test_a_trace_that_was_asked_for_is_not_called_unasked(ended: str, tmp_path: Path) -> None:
    """One pass was begun and ended before it was done; the others were never begun."""
    launch = msgspec.structs.replace(failed_launch(), side="torch", ended=ended, passes=["022_torch_trace"])
    folder = six(tmp_path, verdict="FAILED", exit_code=6, reasons=[launch.message], launches=[launch])
    record.write_json(folder / "run.json", {"argv": ["bench", "tiny", "--trace"]})
    begun = {"side": "torch", "purpose": "trace", "mode": "baseline:compile"}
    record.write_json(folder / "passes" / "022_torch_trace" / "job.json", begun)
    reasons = [cell.reason for cell in cells(table_of(folder), "kernels_per_step")]
    how = "was interrupted" if ended == "interrupted" else "crashed"
    never = "a trace was asked for, but the run ended before it was made"
    begun_reason = f"a trace was asked for, but the launch that was to make it {how}"
    assert reasons == ["", never, begun_reason, never, never, never]


def test_warnings_with_one_mend_stand_together_and_once(tmp_path: Path) -> None:
    found = [
        SpeedWarning(kind="drift", where=where, found="moved by 9 %", mend="measure longer")
        for where in ("a", "b")
    ]
    other = SpeedWarning(kind="few windows", where="c", found="2 windows", mend="--windows 8")
    folder = six(tmp_path, warnings=[found[0], other, found[1]])
    read = Page(page.write(folder).read_text("utf-8"))
    at = read.words.index("a: moved by 9 %")
    assert read.words[at + 1 : at + 3] == ["b: moved by 9 %", "measure longer"]
    assert read.words.count("measure longer") == read.words.count("--windows 8") == 1


def test_a_command_line_can_be_read_and_typed(tmp_path: Path) -> None:
    call = Invocation(
        number=1, argv=["bench", "tiny", "--edit", "a b"], utc="now", host_hash="h", windows=8,
        steps_per_window=3, ended="done",
    )  # fmt: skip
    read = Page(page.write(six(tmp_path, invocations=[call])).read_text("utf-8"))
    assert "parity bench tiny --edit 'a b'" in read.text
    assert "<li>" not in read.html.partition("Invocations")[2].partition("</section>")[0]


def test_the_first_numbers_name_the_call_where_there_were_several(tmp_path: Path) -> None:
    made = [
        Invocation(
            number=number, argv=["bench", "tiny"], utc="now", host_hash="h", windows=8, steps_per_window=3,
            ended="done",
        )
        for number in (1, 2)
    ]  # fmt: skip
    for calls in (made[:1], made):
        folder = six(tmp_path / str(len(calls)), invocations=calls)
        facts = glance.facts(msgspec.json.decode((folder / "result.json").read_bytes(), type=Result))
        notes = [one.note for one in facts if one.note.startswith("median")]
        assert notes and all(note.endswith(", call 2") == (calls == made) for note in notes)


def test_a_note_is_text_and_nothing_else(tmp_path: Path) -> None:
    folder = six(tmp_path)
    content = msgspec.json.decode((folder / "result.json").read_bytes(), type=Result)
    content.bench[1].speed.reasons["mfu"] = '"><img src=x>'
    content.bench[1].speed.mfu = None
    (folder / "result.json").write_bytes(msgspec.json.encode(content))
    read = Page(page.write(folder).read_text("utf-8"))
    assert not read.all("img") and not read.misfits
