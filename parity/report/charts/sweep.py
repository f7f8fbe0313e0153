"""Step time over batch, both by decades: a line a contender with its intervals, the model's prediction of it,
and the batches at which two lines cross."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from parity.report.charts import axes, svg
from parity.report.charts.svg import Area, Point
from parity.report.charts.timeline import fitting

_LEFT, _TOP, _LEAD = 44, 26, 26
"""`_LEAD` is the room between the last points and the names, for the lines that join the two."""
_LEAST_HEIGHT, _NAME, _LETTER = 300, 31, 14
_CHARACTER = 6.8
_CAP = 3.5
"""Half the width of a whisker's end."""
_DASHES = 5


@dataclass(frozen=True)
class Measured:
    """A contender at one batch."""

    batch: float
    median: float
    low: float
    high: float
    """Ends of the whisker."""
    fitted: bool
    """Whether the model was fitted on it."""


@dataclass(frozen=True)
class Line:
    """A contender."""

    of: str
    name: str
    """Both are written at its end, the one above the other."""
    colour: int
    marker: int
    dashes: int
    """0 is a solid line."""
    points: tuple[Measured, ...]
    """By batch."""
    model: tuple[Point, ...]
    """What the model says of it; nothing where it says nothing."""


@dataclass(frozen=True)
class Crossing:
    """Where two lines cross."""

    letter: str
    batch: float
    step_ms: float
    between: tuple[float, float]
    """Its interval, by batch."""


def draw(
    lines: Sequence[Line], crossings: Sequence[Crossing], width: float, title: str, description: str
) -> Markup:
    """The picture, as wide as asked for. Each line has its name at its end, cut where there is no room."""
    letters = max(len(words) for line in lines for words in (line.of, line.name))
    names = 8 + _CHARACTER * min(letters, 26 if width >= 500 else 14)
    height = max(_LEAST_HEIGHT, _NAME * len(lines) + 20)
    area = Area(_LEFT, _TOP, width - names - _LEAD, _TOP + height)
    batches = sorted({point.batch for line in lines for point in line.points})
    times = [time for line in lines for one in line.points for time in (one.low, one.high)]
    modelled = [time for line in lines for _, time in line.model]
    x = axes.decades(batches, area.left, area.right)
    y = axes.decades([*times, *modelled], area.bottom, area.top)
    parts = [*axes.y_axis(y, area, "step time, ms, by decades")]
    parts += axes.x_axis(x, area, "rows of a step, by decades", _ticks(batches, x))
    parts += _crossings(crossings, x, y, area)
    for line in lines:
        parts += _model(line, x, y)
    for line in lines:
        parts += _line(line, x, y)
    parts += _names(lines, x, y, area, int((names - 8) / _CHARACTER))
    return svg.picture(width, area.bottom + 40, parts, title, description)


def _ticks(batches: Sequence[float], x: axes.Scale) -> list[tuple[float, str]]:
    """The batches themselves, as far as their numbers have room beside each other."""
    found: list[tuple[float, str]] = []
    free = x.start
    for batch in batches:
        label = f"{batch:g}"
        half = 3.6 * len(label) + 2
        if x(batch) - half >= free or not found:
            found.append((batch, label))
            free = x(batch) + half
    return found


def _model(line: Line, x: axes.Scale, y: axes.Scale) -> Iterator[str]:
    if line.model:
        yield svg.polyline([(x(batch), y(time)) for batch, time in line.model], f"model s{line.colour}")


def _line(line: Line, x: axes.Scale, y: axes.Scale) -> Iterator[str]:
    style = f"s{line.colour}"
    places = [(x(one.batch), y(one.median)) for one in line.points]
    yield svg.polyline(places, f"over {style} d{line.dashes % _DASHES}")
    for one, (at, middle) in zip(line.points, places, strict=True):
        ends = y(one.low), y(one.high)
        yield svg.line(at, ends[0], at, ends[1], f"whisker {style}")
        for end in ends:
            yield svg.line(at - _CAP, end, at + _CAP, end, f"whisker {style}")
        yield svg.marker(line.marker, at, middle, f"point {style}{' fitted' if one.fitted else ''}", 4.2)


def _crossings(crossings: Sequence[Crossing], x: axes.Scale, y: axes.Scale, area: Area) -> Iterator[str]:
    """A ring, a line down to the axis with the letter at its foot, and the interval along the axis."""
    ordered = sorted(crossings, key=lambda one: one.batch)
    feet = apart([x(one.batch) + 5 for one in ordered], _LETTER, area.left, area.right + _LEAD)
    for one, foot in zip(ordered, feet, strict=True):
        at = x(one.batch)
        yield svg.line(at, y(one.step_ms), at, area.bottom, "drop")
        low, high = map(x, one.between)
        yield svg.rect(low, area.bottom - 3, max(high - low, 1.0), 6, "extent")
        yield svg.element("circle", cx=at, cy=y(one.step_ms), r=7.0, class_="ring")
        yield svg.text(foot, area.bottom - 8, one.letter, "lane")


def _names(lines: Sequence[Line], x: axes.Scale, y: axes.Scale, area: Area, letters: int) -> Iterator[str]:
    """The name at the end of each line, moved apart where lines end together, with the line's marker."""
    ordered = sorted(lines, key=lambda line: y(line.points[-1].median))
    wanted = [y(line.points[-1].median) for line in ordered]
    left = area.right + _LEAD
    for line, at, middle in zip(
        ordered, wanted, apart(wanted, _NAME, area.top + 8, area.bottom - 8), strict=True
    ):
        style = f"s{line.colour}"
        yield svg.line(x(line.points[-1].batch) + 6, at, left - 9, middle, f"lead {style}")
        yield svg.marker(line.marker, left - 7, middle, f"point {style} fitted", 4.2)
        yield svg.text(left + 2, middle - 2, fitting(line.of, letters), "name")
        yield svg.text(left + 2, middle + 11, fitting(line.name, letters), "label")


def apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places in ascending order moved as little as it takes to be `gap` apart, between two ends."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + gap if found else low))
    limit = high
    for index in reversed(range(len(found))):
        found[index] = min(found[index], limit)
        limit = found[index] - gap
    return found
