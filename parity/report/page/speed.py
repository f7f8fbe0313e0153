"""The page's figures of speed: every sample as a mark, and the table of what a step costs device and host.

Must not: compute statistics; they are the result's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from parity.report.charts import samples as chart
from parity.report.page import words
from parity.report.page.folder import RunFolder
from parity.report.page.picture import Picture, both
from parity.report.result import Ratio, Result, SideSpeed
from parity.report.rows import speed_phrase
from spec.measure import FIGURES


@dataclass(frozen=True)
class Contender:
    """A side's step in one mode."""

    label: str
    side: str
    mode: str
    speed: SideSpeed
    compared: str

    @property
    def traced(self) -> Any:
        """What is known of its trace; None where there is none."""
        return msgspec.to_builtins(self.speed.trace)

    """Its time relative to another's; empty where nothing is said of it."""


@dataclass(frozen=True)
class Cell:
    """A figure, or why there is none."""

    value: str
    reason: str


@dataclass(frozen=True)
class Row:
    """One figure of every contender."""

    name: str
    cells: list[Cell]


@dataclass(frozen=True)
class Section:
    """What the page shows of speed."""

    contenders: list[Contender]
    phrase: str
    rows: list[Row]
    missing: dict[str, list[str]]
    """Figures that no contender has, by the reason that all of them give."""
    picture: Picture | None
    rule: str
    why_not: str


def section(result: Result, folder: RunFolder) -> Section:
    """Picture and table; a reason where nothing was timed."""
    contenders = list(_contenders(result))
    if not contenders:
        why_not = result.unmeasured.get("speed", "no time pass was finished")
        return Section([], "", [], {}, None, "", why_not)
    rows = _rows(contenders)
    return Section(
        contenders=contenders,
        phrase=speed_phrase(result).removeprefix("speed: "),
        rows=[row for row in rows if not _missing(row)],
        missing=_by_reason(rows),
        picture=_picture(contenders, folder),
        rule=result.speed.rule if result.speed else "",
        why_not="",
    )


def _contenders(result: Result) -> Iterator[Contender]:
    for row in result.bench:
        own = "the side's own" if row.ratio_to_own is None else f"{ratio(row.ratio_to_own)} of the side's own"
        yield Contender(f"{row.side} {row.mode}", row.side, row.mode, row.speed, own)
    if not result.bench and result.speed is not None:
        modes = {side: mode for run in result.runs for side, mode in run.modes.items()}
        for side in ("torch", "jax"):
            speed = getattr(result.speed, side)
            if speed is not None:
                yield Contender(f"{side} {speed.mode}", side, modes.get(side, speed.mode), speed, "")


def ratio(value: Ratio) -> str:
    """A ratio with its interval."""
    low, high = value.ci95
    return f"{value.median:.3f} (95 % {low:.3f} to {high:.3f})"


def _rows(contenders: Sequence[Contender]) -> list[Row]:
    rows = [Row(name, [_cell(name, one) for one in contenders]) for name in FIGURES]
    if any(one.compared for one in contenders):
        rows.insert(1, Row("step_ms, relative", [Cell(one.compared, "") for one in contenders]))
    return rows


def _cell(name: str, one: Contender) -> Cell:
    value = getattr(one.speed, name)
    return Cell(words.figure(name, value), words.reason(one.speed.reasons, name) if value is None else "")


def _missing(row: Row) -> bool:
    """Whether no contender has the figure, all for one reason."""
    return bool(row.cells[0].reason) and len(set(row.cells)) == 1


def _by_reason(rows: Sequence[Row]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        if _missing(row):
            found.setdefault(row.cells[0].reason, []).append(row.name)
    return found


def _picture(contenders: Sequence[Contender], folder: RunFolder) -> Picture | None:
    groups = []
    for one in contenders:
        passes = [item.step_ms() for item in folder.of("time", one.side) if item.mode == one.mode]
        passes = [samples for samples in passes if samples]
        if passes and one.speed.step_ms is not None:
            spread = one.speed.step_ms
            label = f"{one.label}: median {words.amount(spread.median)} ms"
            number = 0 if one.side == "torch" else 1
            groups.append(chart.Samples(label, number, tuple(passes), spread.median, spread.p10, spread.p90))
    if not groups:
        return None
    told = "; ".join(f"{group.label}, 80 % from {group.p10:.4g} to {group.p90:.4g}" for group in groups)
    draw = partial(chart.draw, groups, words="step time, ms", title="Step times", description=f"{told}.")
    return both(
        draw,
        "Each mark is one window of back-to-back steps; above the line, how many fall together. Passes have "
        "marks of their own in the order they were run (disc, square, triangle, diamond); the box goes from "
        "the 10th to the 90th percentile, the stroke is the median.",
    )
