"""The page's figures of speed: every sample as a mark, the table of what a step costs, and its traces.

Must not: compute statistics; they are the result's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from parity.report.charts import samples as chart
from parity.report.page import costs, words
from parity.report.page.costs import Contender, Table
from parity.report.page.folder import Pass, RunFolder
from parity.report.page.picture import Picture, both
from parity.report.result import Result
from parity.report.rows import speed_phrase


@dataclass(frozen=True)
class Part:
    """Contenders that stand beside each other: all of them, or those at one batch of a sweep."""

    batch: int | None
    """None where there is one part."""
    contenders: list[Contender]
    table: Table
    picture: Picture | None

    @property
    def traces(self) -> list[tuple[str, Any]]:
        """What is known of each trace, by contender."""
        found = [(one.label, one.speed.trace) for one in self.contenders]
        return [(label, msgspec.to_builtins(trace)) for label, trace in found if trace is not None]


@dataclass(frozen=True)
class Section:
    """What the page shows of speed."""

    parts: list[Part]
    phrase: str
    rule: str
    why_not: str


def section(result: Result, folder: RunFolder) -> Section:
    """Picture and table; a reason where nothing was timed."""
    contenders = list(_contenders(result))
    if not contenders:
        why_not = result.unmeasured.get("speed", "no time pass was finished")
        return Section([], "", "", why_not)
    batches = list(dict.fromkeys(one.row.batch if one.row else None for one in contenders))
    parts = {None: contenders}
    if len(batches) > 1:
        parts = {
            batch: [one for one in contenders if one.row and one.row.batch == batch] for batch in batches
        }
    return Section(
        parts=[
            Part(batch, own, costs.table(own, result, folder), _picture(own, folder))
            for batch, own in parts.items()
        ],
        phrase=speed_phrase(result).removeprefix("speed: "),
        rule=result.speed.rule if result.speed else "",
        why_not="",
    )


def _contenders(result: Result) -> Iterator[Contender]:
    modes = {side: mode for run in result.runs for side, mode in run.modes.items()}
    calls = {row.invocation for row in result.bench}
    for row in result.bench:
        call = f", call {row.invocation}" if len(calls) > 1 else ""
        yield Contender(row.side, f"{row.mode}{call}", row.mode, row.speed, row, row.is_own)
    if not result.bench and result.speed is not None:
        for side in ("torch", "jax"):
            speed = getattr(result.speed, side)
            if speed is not None:
                yield Contender(side, speed.mode, modes.get(side, speed.mode), speed, None, True)


def timed(one: Contender, folder: RunFolder) -> list[Pass]:
    """The passes that its figures are of."""
    passes = [item for item in folder.of("time", one.side) if item.mode == one.mode]
    if one.row is None or one.row.batch is None:
        return passes
    measured = folder.block(one.row.invocation, one.row.batch)
    return [item for item in passes if item.folder.name in measured]


def _picture(contenders: Sequence[Contender], folder: RunFolder) -> Picture | None:
    groups = []
    for one in contenders:
        passes = [samples for item in timed(one, folder) if (samples := item.step_ms())]
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
