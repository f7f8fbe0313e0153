"""The page's table of tensors: one row a tensor, one column a phase, each cell in units of its bound.

A cell of 1 lies on its bound. Must not: judge; what lies beyond is the result's to say.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from parity.report.page.folder import RunFolder
from parity.report.page.words import number
from parity.report.result import LockstepRow, Numerics, Result, TensorDifference
from parity.report.words import allowed

_SHOWN = 40
"""Rows before the fold."""


@dataclass(frozen=True)
class Cell:
    """One tensor in one phase."""

    words: str
    level: int
    """0 to 3 within the bound, 4 beyond it."""
    title: str
    """What was measured, in full."""


@dataclass(frozen=True)
class Row:
    """One tensor."""

    tensor: str
    cells: list[Cell | None]


@dataclass(frozen=True)
class Probe:
    """What one quantity of a step made from the same state showed."""

    where: str
    finding: str
    difference: str
    floor: str
    errors: str
    reason: str


@dataclass(frozen=True)
class Section:
    """What the page shows of tensors."""

    heads: list[tuple[str, str]]
    """Phase and step of each column."""
    shown: list[Row]
    folded: list[Row]
    beyond: int
    compared: int
    probes: list[Probe]
    why_not: str


def section(result: Result, folder: RunFolder) -> Section:
    """The table of the pair that decided; a reason where no tensor was compared."""
    numerics = result.numerics
    if numerics is None or not (numerics.tensors or numerics.lockstep):
        return Section([], [], [], 0, 0, [], _why_not(result, numerics))
    places = list(dict.fromkeys((item.step, item.phase) for item in numerics.tensors))
    rows = _rows(numerics.tensors, places, _order(folder))
    rows = _failing_first(rows) if len(rows) > _SHOWN else rows
    probes = list(_probes(numerics)) if numerics.lockstep else []
    return Section(
        heads=[(phase, f"step {step}") for step, phase in places],
        shown=rows[:_SHOWN],
        folded=rows[_SHOWN:],
        beyond=sum(not item.ok for item in numerics.tensors),
        compared=len(numerics.tensors),
        probes=probes,
        why_not="",
    )


def _why_not(result: Result, numerics: Numerics | None) -> str:
    if numerics is None:
        return result.unmeasured.get("numerics", "no pair was judged")
    return numerics.unmeasured.get("loss", "the passes observed no tensor")


def _order(folder: RunFolder) -> dict[str, int]:
    """Parameters in the order of the model."""
    for one in folder.of("run"):
        rows = (one.manifest.get("facts") or {}).get("parameters") or []
        return {row["name"]: index for index, row in enumerate(rows)}
    return {}


def _rows(
    items: Sequence[TensorDifference], places: Sequence[tuple[int, str]], order: Mapping[str, int]
) -> list[Row]:
    found: dict[str, dict[tuple[int, str], TensorDifference]] = {}
    for item in items:
        found.setdefault(item.tensor, {})[item.step, item.phase] = item
    names = sorted(found, key=lambda name: (order.get(name.partition("[")[0], len(order)), name))
    return [
        Row(name, [_cell(found[name][at]) if at in found[name] else None for at in places]) for name in names
    ]


def _failing_first(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -max(cell.level for cell in row.cells if cell is not None))


def _cell(item: TensorDifference) -> Cell:
    share = in_bounds(item)
    words = "not finite" if math.isinf(share) else _share(share)
    level = 4 if not item.ok else 0 if share < 0.1 else 1 if share < 0.3 else 2 if share < 0.7 else 3
    title = (
        f"{item.phase} of {item.tensor} at step {item.step}: rms {number(item.rms_rel)} of "
        f"{allowed(item.tolerance_rms)}, worst element {number(item.max_rel)} of "
        f"{allowed(item.tolerance_max)}"
    )
    return Cell(words, level, f"{title}; {item.note}" if item.note else title)


def in_bounds(item: TensorDifference) -> float:
    """The difference in units of its bound, the nearer of RMS and worst element; infinite where it is not
    finite on one side."""
    if item.rms_rel is None or item.max_rel is None:
        return math.inf
    pairs = ((item.rms_rel, item.tolerance_rms), (item.max_rel, item.tolerance_max))
    return max(found / bound if bound else math.inf if found else 0.0 for found, bound in pairs)


def _share(share: float) -> str:
    if share == 0:
        return "0"
    if share < 0.01:
        return "<0.01"
    return f"{share:.2f}" if share < 10 else f"{share:,.0f}"


def _probes(numerics: Numerics) -> Iterator[Probe]:
    assert numerics.lockstep is not None
    for row in numerics.lockstep.rows:
        numbers = row.numbers
        errors = (
            ""
            if numbers is None
            else ", ".join(
                f"{side} {value:.2g}" for side, value in numbers.error_in_floors.items() if value is not None
            )
        )
        yield Probe(
            where=_where(row),
            finding=row.finding,
            difference=number(numbers.rms_rel) if numbers else "",
            floor="" if numbers is None or numbers.floor_rms is None else f"{numbers.floor_rms:.1e}",
            errors=errors,
            reason=row.reason,
        )


def _where(row: LockstepRow) -> str:
    return f"step {row.step}, {row.phase}{f', {row.tensor}' if row.tensor else ''}"
