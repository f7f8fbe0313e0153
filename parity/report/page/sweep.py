"""The page's part about a sweep: step time over batch as a picture and a table, where contenders cross, and
the model of host and device in words and numbers.

Must not: fit or measure; times, crossings and models are the result's.
"""

import math
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from parity.bench import host_model
from parity.report import bench_table
from parity.report.charts import sweep as chart
from parity.report.page.picture import Picture, both
from parity.report.page.words import amount
from parity.report.result import Result
from parity.report.speeds import Crossing, HostModel, Sweep, SweepPoint

Contender = tuple[str, str]
"""Side and mode."""
_STEPS = 60
"""Places that a line of the model is drawn through."""


@dataclass(frozen=True)
class Crossed:
    """What is told of two contenders, and the letter of a crossing of theirs in the picture."""

    letter: str
    words: str


@dataclass(frozen=True)
class Cell:
    """A contender at a batch; nothing where it was not measured."""

    median: str = ""
    more: tuple[str, ...] = ()
    fastest: bool = False


@dataclass(frozen=True)
class Row:
    """A batch."""

    batch: int
    cells: list[Cell]


@dataclass(frozen=True)
class Modelled:
    """What the model says of a contender."""

    side: str
    mode: str
    host: str
    device: str
    per_row: str
    bend: str
    within: str


@dataclass(frozen=True)
class Section:
    """What the page shows of a sweep; no rows where nothing was measured to its end."""

    picture: Picture | None
    crossings: list[Crossed]
    contenders: list[Contender]
    rows: list[Row]
    models: list[Modelled]
    meaning: str
    target: str
    notes: list[str]


def section(result: Result) -> Section | None:
    """Picture, tables and words; None for a command that swept nothing."""
    found = result.sweep
    if found is None:
        return None
    contenders = list(dict.fromkeys((point.side, point.mode) for point in found.points))
    lettered = list(_lettered(found.crossings))
    told = zip(lettered, bench_table.crossings(found), strict=True)
    points = {(point.side, point.mode, point.batch): point for point in found.points}
    rows = [Row(batch, _cells(batch, contenders, points, found.target)) for batch in found.batches]
    return Section(
        picture=_picture(found, contenders, lettered) if contenders else None,
        crossings=[Crossed(letter, f"{words}.") for letter, words in told],
        contenders=contenders,
        rows=rows if contenders else [],
        models=list(_models(found, contenders)),
        meaning=found.meaning,
        target=f"{100 * found.target:.0f} %",
        notes=[_sentence(note) for note in _notes(found)],
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _lettered(crossings: Sequence[Crossing]) -> Iterator[str]:
    """The letter of each crossing, in the order of the result; none where two do not cross."""
    letters = iter(string.ascii_uppercase + string.ascii_lowercase)
    for one in crossings:
        yield "" if one.batch is None else next(letters, "*")


def _cells(
    batch: int,
    contenders: Sequence[Contender],
    points: Mapping[tuple[str, str, int], SweepPoint],
    target: float,
) -> list[Cell]:
    found = [points.get((*who, batch)) for who in contenders]
    least = min((point.step_ms.median for point in found if point), default=0.0)
    several = sum(point is not None for point in found) > 1
    return [
        Cell()
        if point is None
        else Cell(
            amount(point.step_ms.median), _more(point, target), several and point.step_ms.median == least
        )
        for point in found
    ]


def _more(point: SweepPoint, target: float) -> tuple[str, ...]:
    """The spread, and how far off the model is."""
    at = point.step_ms
    spread = f"{amount(at.p10)} to {amount(at.p90)}, n\u00a0{at.n}"
    if point.predicted_ms is None or point.error is None:
        return spread, "no prediction"
    verb = "fitted" if point.fitted else "predicted"
    beyond = "" if point.fitted or abs(point.error) <= target else " !"
    # Adding 0 takes the sign from a rounded -0.
    error = round(100 * point.error, 1) + 0.0
    return spread, f"{verb} {amount(point.predicted_ms)}, {error:+.1f}\u00a0%{beyond}"


def _models(sweep: Sweep, contenders: Sequence[Contender]) -> Iterator[Modelled]:
    models = {model.side: model for model in sweep.model}
    for side, mode in contenders:
        if (model := models.get(side)) is None:
            continue
        own = [point for point in sweep.points if (point.side, point.mode) == (side, mode)]
        if all(point.predicted_ms is None for point in own):
            # The side's device may be known of others.
            model = HostModel(
                side=side, host_ms={}, device_ms=None, device_ms_per_row=None, reason=model.reason
            )
        host, per_row = model.host_ms.get(mode), model.device_ms_per_row
        bend = host_model.bend(model, mode)
        errors = [abs(point.error) for point in own if not point.fitted and point.error is not None]
        good = sum(error <= sweep.target for error in errors)
        yield Modelled(
            side=side,
            mode=mode,
            host="\u2013" if host is None else amount(host),
            device="\u2013" if model.device_ms is None else amount(model.device_ms),
            per_row="\u2013" if per_row is None else amount(1e3 * per_row),
            bend="\u2013" if bend is None else _bend(bend, sweep),
            within=f"{good} of {len(errors)}" if errors else "\u2013",
        )


def _bend(batch: float, sweep: Sweep) -> str:
    told = amount(round(batch, 1))
    return told if sweep.batches[0] <= batch <= sweep.batches[-1] else f"{told}, beyond the sweep"


def _notes(sweep: Sweep) -> Iterator[str]:
    """What it was fitted on, why something is not known, and how well it predicts."""
    yield from bench_table.fitted_on(sweep)
    for model in sweep.model:
        if model.reason:
            yield f"of {model.side}, {model.reason}"
    if any(point.fitted for point in sweep.points):
        yield bench_table.predicted(sweep)


def _picture(sweep: Sweep, contenders: Sequence[Contender], lettered: Sequence[str]) -> Picture:
    sides = [side for side, _ in contenders]
    lines = {
        " ".join(who): _line(sweep, who, number, sides[:number].count(who[0]))
        for number, who in enumerate(contenders)
    }
    lettered_crossings = zip(sweep.crossings, lettered, strict=True)
    marks = [
        mark
        for one, letter in lettered_crossings
        if (mark := _mark(one, letter, sweep.crossings, lines)) is not None
    ]
    told = "; ".join(
        f"{name} from {line.points[0].median:.4g} ms at batch {line.points[0].batch:g} "
        f"to {line.points[-1].median:.4g} ms at {line.points[-1].batch:g}"
        for name, line in lines.items()
    )
    draw = partial(
        chart.draw, list(lines.values()), marks, title="Step time over batch", description=f"Medians: {told}."
    )
    caption = "Marks are medians, whiskers go from the 10th to the 90th percentile of the windows"
    if any(line.model for line in lines.values()):
        caption += (
            "; the thin line is the model, which was fitted on the filled marks and predicts the others"
        )
    if marks:
        caption += (
            "; a ring is where two contenders take equally long, and on the axis lies its 95 % interval"
        )
    return both(draw, f"{caption}.")


def _line(sweep: Sweep, who: Contender, number: int, of_side: int) -> chart.Line:
    """A contender's line; `number` counts all of them, `of_side` those of its side."""
    side, mode = who
    own = [point for point in sweep.points if (point.side, point.mode) == who]
    return chart.Line(
        of=f"{side} baseline" if mode.startswith("baseline:") else side,
        name=mode.removeprefix("baseline:"),
        colour=0 if side == "torch" else 1,
        marker=number,
        dashes=of_side,
        points=tuple(
            chart.Measured(at.batch, at.step_ms.median, at.step_ms.p10, at.step_ms.p90, at.fitted)
            for at in sorted(own, key=lambda point: point.batch)
        ),
        model=_curve(next((one for one in sweep.model if one.side == side), None), mode, own),
    )


def _curve(model: HostModel | None, mode: str, own: Sequence[SweepPoint]) -> tuple[tuple[float, float], ...]:
    """The model between the least and the largest batch that were measured, through its bend."""
    low, high = min(point.batch for point in own), max(point.batch for point in own)
    if model is None or all(point.predicted_ms is None for point in own) or low == high:
        return ()
    batches = [low * (high / low) ** (step / _STEPS) for step in range(_STEPS + 1)]
    bend = host_model.bend(model, mode)
    if bend is not None and low < bend < high:
        batches = sorted([*batches, bend])
    found = [(batch, host_model.predict(model, mode, batch)) for batch in batches]
    return tuple((batch, time) for batch, time in found if time is not None)


def _mark(
    one: Crossing, letter: str, others: Sequence[Crossing], lines: Mapping[str, chart.Line]
) -> chart.Crossing | None:
    """A crossing on the first one's line; an interval without a bound ends at these two's next crossing, or
    with the sweep."""
    line = lines.get(one.a)
    if one.batch is None or line is None:
        return None
    low, high = one.ci95
    pair = [other.batch for other in others if (other.a, other.b) == (one.a, one.b) and other.batch]
    first = max([line.points[0].batch, *(batch for batch in pair if batch < one.batch)])
    last = min([line.points[-1].batch, *(batch for batch in pair if batch > one.batch)])
    between = first if low is None else low, last if high is None else high
    return chart.Crossing(letter, one.batch, _at(line, one.batch), between)


def _at(line: chart.Line, batch: float) -> float:
    """The time of a line between two of its points, interpolated in the logarithms as crossings are."""
    after = next((index for index, point in enumerate(line.points) if point.batch >= batch), 0)
    if after == 0:
        return line.points[0].median if line.points[0].batch >= batch else line.points[-1].median
    a, b = line.points[after - 1 : after + 1]
    share = math.log(batch / a.batch) / math.log(b.batch / a.batch)
    return a.median * (b.median / a.median) ** share
