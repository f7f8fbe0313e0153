"""One number a step of several sides, and beneath it how far they are apart, on a logarithmic axis."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from parity.report.charts import axes, svg
from parity.report.charts.svg import Area, Point
from parity.report.words import allowed

_LEFT, _RIGHT, _VALUES_HEIGHT, _DIFFERENCES_HEIGHT = 62, 12, 190, 130
_MOST_POINTS = 240
"""A bucket of steps beyond as many keeps its highest and its lowest point."""
_MARKERS = 8


@dataclass(frozen=True)
class Series:
    """A line: its values, by step."""

    label: str
    number: int
    """Decides colour, line style and marker."""
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Curves:
    """What one picture shows."""

    title: str
    description: str
    values: tuple[Series, ...]
    quantity: str
    """The words of the upper axis."""
    differences: tuple[Series, ...] = ()
    """Relative differences; none where one side ran alone."""
    bounds: tuple[Point, ...] = ()
    """The bound of the differences from a step on, by that step; none where none is set."""


def draw(curves: Curves, width: float) -> Markup:
    """The picture, as wide as asked for."""
    upper = Area(_LEFT, 52, width - _RIGHT, 52 + _VALUES_HEIGHT)
    lower = Area(_LEFT, upper.bottom + 46, width - _RIGHT, upper.bottom + 46 + _DIFFERENCES_HEIGHT)
    last = lower if curves.differences else upper
    steps = [x for series in curves.values for x, _ in series.points]
    x = axes.linear(steps, _LEFT, width - _RIGHT, whole=True)
    parts = [*_legend(curves.values, width), *_upper(curves, x, upper)]
    if curves.differences:
        parts += _lower(curves, x, lower)
    parts += axes.x_axis(x, last, "step", 5 if width < 500 else 10)
    return svg.picture(width, last.bottom + 40, parts, curves.title, curves.description)


def _upper(curves: Curves, x: axes.Scale, area: Area) -> Iterator[str]:
    y = axes.linear([y for series in curves.values for _, y in series.points], area.bottom, area.top)
    yield from axes.y_axis(y, area, curves.quantity)
    for series in curves.values:
        yield from _line(series, x, y)


def _lower(curves: Curves, x: axes.Scale, area: Area) -> Iterator[str]:
    found = [y for series in curves.differences for _, y in series.points]
    bounds = [bound for _, bound in curves.bounds]
    y = axes.decades([*found, *bounds, 3 * max(bounds, default=0.0)], area.bottom, area.top)
    edge = _edge(curves.bounds, x, y, area)
    if edge:
        yield svg.polygon([*edge, (area.right, area.bottom), (area.left, area.bottom)], "band")
    yield from axes.y_axis(y, area, "|difference|, relative; at the bottom: equal")
    if edge:
        yield svg.polyline(edge, "line bound")
        told = f"tolerance {allowed(bounds[-1])}, allowed below"
        if len(bounds) > 1:
            told += f"; {allowed(bounds[0])} at step {curves.bounds[0][0]:.0f}"
        yield svg.text(area.right - 4, edge[-1][1] - 5, told, "note", "end")
    for series in curves.differences:
        yield from _line(series, x, y, infinite=area.top)


def _edge(bounds: Sequence[Point], x: axes.Scale, y: axes.Scale, area: Area) -> list[Point]:
    """The upper edge of what is allowed, with a stair half-way between two steps of different bounds."""
    # Over all of the picture: no step lies before the first or after the last.
    starts = [area.left, *(x(step - 0.5) for step, _ in bounds[1:])]
    stops = [*starts[1:], area.right]
    return [
        (place, y(bound))
        for start, stop, (_, bound) in zip(starts, stops, bounds, strict=False)
        for place in (start, stop)
    ]


def _line(series: Series, x: axes.Scale, y: axes.Scale, infinite: float | None = None) -> Iterator[str]:
    """The line, broken where a value is not finite, and a few markers on it.

    Args:
      infinite: where a value that is not finite is marked; None leaves it out.
    """
    points = thinned(series.points)
    style, runs = f"s{series.number % 4}", list(_finite_runs(points))
    for run in runs:
        yield svg.polyline([(x(step), y(value)) for step, value in run], f"line {style}")
    finite = [point for run in runs for point in run]
    stride = max(1, len(finite) // _MARKERS)
    for step, value in finite[(series.number * stride) // 2 :: stride]:
        yield svg.marker(series.number, x(step), y(value), f"mark {style}")
    if infinite is not None:
        for step, value in points:
            if not math.isfinite(value):
                yield svg.text(x(step), infinite + 10, "x", "note", "middle")


def _finite_runs(points: Sequence[Point]) -> Iterator[list[Point]]:
    run: list[Point] = []
    for point in points:
        if math.isfinite(point[1]):
            run.append(point)
        elif run:
            yield run
            run = []
    if run:
        yield run


def thinned(points: Sequence[Point]) -> list[Point]:
    """The points, or of each bucket of neighbours the highest and the lowest, so that no peak is lost."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    size = math.ceil(len(points) / (_MOST_POINTS / 2))
    kept = []
    for start in range(0, len(points), size):
        bucket = points[start : start + size]
        low, high = min(bucket, key=lambda point: point[1]), max(bucket, key=lambda point: point[1])
        kept += sorted({low, high})
    return kept


def _legend(series: Sequence[Series], width: float) -> Iterator[str]:
    """The lines' names with a sample of each, in one row."""
    x = 0.0
    for one in series:
        style = f"s{one.number % 4}"
        yield svg.line(x, 12, x + 34, 12, f"line {style}")
        yield svg.marker(one.number, x + 17, 12, f"mark {style}")
        yield svg.text(x + 40, 16, one.label, "name")
        x += 58 + 7.2 * len(one.label)
        if x > width:
            return
