"""The table of what a step costs: a figure a row, a contender a column, every reason told once.

Most figures that are missing are missing for the same few reasons, so a cell has the number of a note and the
notes stand below. Must not: compute figures.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parity.report.page import words
from parity.report.page.folder import RunFolder
from parity.report.result import BenchRow, Ratio, Result, SideSpeed
from parity.speed.tracing import FIGURES as TRACED
from spec.measure import FIGURES

TRACED_TITLE = (
    "From a trace, which makes calls slower: counts are exact, times inside calls are longer than without it."
)
_HOW = {
    "error": "ended with an error",
    "crashed": "crashed",
    "killed": "was killed",
    "timeout": "ran out of time",
    "interrupted": "was interrupted",
}


@dataclass(frozen=True)
class Contender:
    """A side's step in one mode."""

    side: str
    name: str
    """Its mode, and what tells it from others of that mode."""
    mode: str
    """As it was asked for."""
    speed: SideSpeed
    row: BenchRow | None
    """Its row of a benchmark."""
    is_own: bool
    """Whether it is this project's step of the side and no baseline."""

    @property
    def label(self) -> str:
        """What it is called outside the table."""
        return f"{self.side} {self.name}"


@dataclass(frozen=True)
class Cell:
    """A figure, or why there is none."""

    told: words.Told
    reason: str = ""


@dataclass(frozen=True)
class Row:
    """One figure of every contender."""

    name: str
    cells: list[Cell]

    @property
    def is_missing(self) -> bool:
        """Whether no contender has it."""
        return all(cell.reason for cell in self.cells)


@dataclass(frozen=True)
class Group:
    """Rows that were measured in one way."""

    title: str
    rows: list[Row]


@dataclass(frozen=True)
class Table:
    """The table with its notes."""

    groups: list[Group]
    notes: dict[str, int]
    """Numbers of the reasons that cells point to, in the order of the table."""
    missing: dict[str, list[str]]
    """Figures that no contender has, by the reasons why."""


def table(contenders: Sequence[Contender], result: Result, folder: RunFolder) -> Table:
    """Every figure of every contender."""
    groups = [Group(title, list(rows)) for title, rows in _groups(contenders, result, folder)]
    shown = [Group(one.title, [row for row in one.rows if not row.is_missing]) for one in groups]
    notes: dict[str, int] = {}
    missing: dict[str, list[str]] = {}
    for row in (row for group in groups for row in group.rows):
        if row.is_missing:
            missing.setdefault(_together(row, contenders), []).append(row.name)
            continue
        for cell in row.cells:
            if cell.reason:
                notes.setdefault(cell.reason, len(notes) + 1)
    return Table([group for group in shown if group.rows], notes, missing)


def _together(row: Row, contenders: Sequence[Contender]) -> str:
    """Why no contender has a figure; who has which reason where there are several."""
    reasons: dict[str, list[str]] = {}
    for cell, one in zip(row.cells, contenders, strict=True):
        reasons.setdefault(cell.reason, []).append(one.label)
    if len(reasons) == 1:
        return row.cells[0].reason
    return "; ".join(f"{', '.join(labels)}: {reason}" for reason, labels in reasons.items())


def _groups(
    contenders: Sequence[Contender], result: Result, folder: RunFolder
) -> Iterator[tuple[str, Iterator[Row]]]:
    """Times and ratios, what a trace tells, and the rest."""
    names = list(FIGURES)
    first, last = names.index(TRACED[0]), names.index(TRACED[-1]) + 1

    def rows(names: Sequence[str]) -> Iterator[Row]:
        for name in names:
            yield Row(name, [_cell(name, one, result, folder) for one in contenders])

    def timed() -> Iterator[Row]:
        yield from rows(names[:1])
        yield from _ratios(contenders)
        yield from rows(names[1:first])

    def traced() -> Iterator[Row]:
        yield Row("step_ms while traced", [_traced_step(one, result, folder) for one in contenders])
        yield from rows(names[first:last])

    yield "", timed()
    yield TRACED_TITLE, traced()
    yield "", rows(names[last:])


def _cell(name: str, one: Contender, result: Result, folder: RunFolder) -> Cell:
    value = getattr(one.speed, name)
    if value is not None:
        return Cell(words.figure(name, value))
    return Cell(words.Told(""), _reason(name, one, result, folder))


def _traced_step(one: Contender, result: Result, folder: RunFolder) -> Cell:
    """How long a step took while it was traced, which tells what tracing costs."""
    trace = one.speed.trace
    if trace is None:
        return Cell(words.Told(""), _reason("trace", one, result, folder))
    if trace.step_ms is None:
        return Cell(words.Told(""), "the trace holds too few steps")
    return Cell(words.Told(words.amount(trace.step_ms)))


def _reason(name: str, one: Contender, result: Result, folder: RunFolder) -> str:
    reason = words.reason(one.speed.reasons, name)
    if reason == one.speed.reasons.get("trace"):
        return _untraced(one, result, folder) or reason
    # One note for all modes: the column says which it is.
    return reason.replace(f"in mode {one.speed.mode}", "in this mode")


def _untraced(one: Contender, result: Result, folder: RunFolder) -> str:
    """Why a trace that was asked for was not made; empty where none was, or nobody wrote down why."""
    passes = {item.folder.name for item in folder.of("trace", one.side) if item.mode == one.mode}
    for launch in result.launches:
        if launch.ended in _HOW and not passes.isdisjoint(launch.passes):
            return f"a trace was asked for, but the launch that was to make it {_HOW[launch.ended]}"
    number = one.row.invocation if one.row is not None else 1
    call = next((call for call in result.invocations if call.number == number), None)
    argv = call.argv if call is not None else folder.run.get("argv") or []
    if "--trace" in argv and not passes and result.verdict == "FAILED":
        return "a trace was asked for, but the run ended before it was made"
    return ""


def _ratios(contenders: Sequence[Contender]) -> Iterator[Row]:
    """A benchmark's ratios."""
    rows = [(one, one.row) for one in contenders if one.row is not None]
    if rows:
        yield Row("step_ms / own step", [_to_own(one, row) for one, row in rows])
    if any(row.peer for _, row in rows):
        yield Row("step_ms / best peer", [_to_peer(row) for _, row in rows])


def _to_own(one: Contender, row: BenchRow) -> Cell:
    if one.is_own:
        return Cell(words.Told("own step"))
    return _ratio(row.ratio_to_own, "it was not timed together with the side's own step")


def _to_peer(row: BenchRow) -> Cell:
    if row.peer is not None and row.peer == row.mode:
        return Cell(words.Told("best peer"))
    return _ratio(row.ratio_to_peer, "no baseline of its side was timed together with it", row.peer)


def _ratio(ratio: Ratio | None, reason: str, other: str | None = None) -> Cell:
    """A ratio with its interval, and of what it is."""
    if ratio is None:
        return Cell(words.Told(""), reason)
    low, high = map(words.amount, ratio.ci95)
    told = ("95 %", f"{low} to {high}", *([f"of {other.removeprefix('baseline:')}"] if other else []))
    return Cell(words.Told(words.amount(ratio.median), told))
