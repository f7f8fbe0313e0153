"""The page's curves: loss and gradient norm of every side, and how far the judged pairs are apart.

Must not: judge; bounds are the result's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from parity.judge.align import Curve, joined
from parity.judge.curves import relative_difference
from parity.report.charts import curves as chart
from parity.report.page.folder import RunFolder
from parity.report.page.picture import Picture, both
from parity.report.page.words import number
from parity.report.result import CurveDifference, Numerics, Result
from parity.report.words import allowed

_QUANTITIES = {"loss": "loss", "grad_norm": "gradient norm"}


@dataclass(frozen=True)
class Row:
    """How far apart one quantity of a pair is."""

    pair: str
    quantity: str
    difference: str
    step: str
    tolerance: str
    reason: str


@dataclass(frozen=True)
class Section:
    """What the page shows of curves."""

    pictures: list[Picture]
    rows: list[Row]
    why_not: str
    """Why there is no picture; empty where there is one."""


def section(result: Result, folder: RunFolder) -> Section:
    """Pictures and table; a reason where no side wrote a step."""
    lines = _lines(result, folder)
    if not lines:
        kind = "bench trains nothing to the end" if result.command == "bench" else "no side wrote a step"
        return Section([], [], result.unmeasured.get("numerics") or kind)
    pictures = [_picture(quantity, lines, result) for quantity in _QUANTITIES]
    return Section(pictures, [row for pair in result.comparisons for row in _rows(pair)], "")


def _lines(result: Result, folder: RunFolder) -> dict[str, Curve]:
    """The curves by the label that the result names them by."""
    if result.command == "compare":
        found = {
            label: RunFolder(Path(run.folder)).own("run", label.rpartition(" ")[2])
            for pair in result.comparisons
            for label, run in zip(pair.pair, result.runs, strict=False)
        }
        curves = {label: one.curve() for label, one in found.items() if one is not None}
    else:
        sides = {side: folder.own("run", side) for side in ("torch", "jax")}
        curves = {side: one.curve() for side, one in sides.items() if one is not None}
        if result.handoff is not None:
            stretches = [curve for one in folder.of("handoff") if (curve := one.curve()) is not None]
            curves[result.handoff.label] = joined(stretches) if stretches else None
    return {label: curve for label, curve in curves.items() if curve is not None}


def _picture(quantity: str, lines: Mapping[str, Curve], result: Result) -> Picture:
    words = _QUANTITIES[quantity]
    judged = [pair for pair in result.comparisons if set(pair.pair) <= set(lines)]
    found = [curve for pair in judged if (curve := getattr(pair, quantity)) is not None]
    differences = _differences(quantity, lines, judged)
    content = chart.Curves(
        title=f"{words.capitalize()} by step",
        description=_description(words, lines, quantity, found),
        values=tuple(
            chart.Series(label, number, _points(curve.first_step, getattr(curve, quantity)))
            for number, (label, curve) in enumerate(lines.items())
        ),
        quantity=words,
        differences=differences,
        bounds=_bounds(found),
    )
    caption = f"{words.capitalize()} of every step of {' and '.join(lines)}"
    caption += ", and beneath it how far they are apart" if differences else ""
    if any(not np.isfinite(getattr(curve, quantity)).all() for curve in lines.values()):
        caption += "; a line breaks where a value is not finite"
    return both(partial(chart.draw, content), f"{caption}.")


def _bounds(found: list[CurveDifference]) -> tuple[tuple[float, float], ...]:
    """The bound from a step on: the first step's own, and that of the rest; the widest of several pairs."""
    if not found:
        return ()
    first = min(one.first_step or 0 for one in found)
    rest = max(one.tolerance for one in found)
    own = max(one.first_tolerance or one.tolerance for one in found)
    return ((float(first), rest),) if own == rest else ((float(first), own), (first + 1.0, rest))


def _differences(
    quantity: str, lines: Mapping[str, Curve], judged: list[Numerics]
) -> tuple[chart.Series, ...]:
    series = []
    for index, pair in enumerate(judged):
        a, b = (lines[label] for label in pair.pair)
        start, stop = max(a.first_step, b.first_step), min(a.stop, b.stop)
        one, other = (getattr(curve.part(start, stop), quantity) for curve in (a, b))
        points = _points(start, relative_difference(one, other))
        # With one pair the line belongs to neither side, so it has a style of its own.
        series.append(chart.Series(" and ".join(pair.pair), 3 if len(judged) == 1 else index, points))
    return tuple(one for one in series if one.points)


def _points(first: int, values: np.ndarray) -> tuple[tuple[float, float], ...]:
    return tuple((float(first + index), float(value)) for index, value in enumerate(values))


def _description(words: str, lines: Mapping[str, Curve], quantity: str, found: list[CurveDifference]) -> str:
    told = [
        f"{label} goes from {getattr(curve, quantity)[0]:.4g} to {getattr(curve, quantity)[-1]:.4g} "
        f"in {curve.num_steps} steps"
        for label, curve in lines.items()
    ]
    told += [f"largest relative difference {number(one.max_rel)} at step {one.at_step}" for one in found]
    return f"The {words}: {'; '.join(told)}."


def _rows(pair: Numerics) -> Iterator[Row]:
    for name, curve in (("loss", pair.loss), ("gradient norm", pair.grad_norm), ("learning rate", pair.lr)):
        if curve is not None:
            source = f", {curve.tolerance_source}"
            yield Row(
                pair=" and ".join(pair.pair),
                quantity=name,
                difference=number(curve.max_rel),
                step=str(curve.at_step) if curve.max_rel or curve.max_rel is None else "\u2013",
                tolerance=f"{_allowed(curve)}{source}" if curve.tolerance else "equal bits",
                reason=curve.tolerance_reason,
            )


def _allowed(curve: CurveDifference) -> str:
    if curve.first_tolerance is None:
        return allowed(curve.tolerance)
    return f"{allowed(curve.tolerance)} ({allowed(curve.first_tolerance)} at step {curve.first_step})"
