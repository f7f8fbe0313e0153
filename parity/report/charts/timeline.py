"""One step of a side in time: the host's calls above, the streams of its devices below.

The overview shows the whole step. A span would be too narrow to be seen there, so each column's height is the
share of its time in which something ran. The detail shows the spans of a short window one by one; a script
of the page can draw another window into it, and finds places and lanes in the attributes written here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from parity.report.charts import axes, svg
from parity.report.charts.names import short
from parity.report.charts.svg import Area

_SIDE_MARGIN, _NAME, _LANE, _GAP = 4, 15, 22, 6
_PITCH = _NAME + _LANE + _GAP
_TOP = 4
"""Room above the first lane."""
_COLUMN = 4
"""Width of a bar of the overview."""
_CHARACTER = 6.0
"""Width of a letter inside a span."""


@dataclass(frozen=True)
class Span:
    """Something that took time."""

    begin_us: float
    """From the beginning of the step."""
    duration_us: float
    name: str

    @property
    def end_us(self) -> float:
        """When it was over."""
        return self.begin_us + self.duration_us


@dataclass(frozen=True)
class Lane:
    """Spans of one kind in one place, one beside the other."""

    label: str
    kind: str
    """Class of its spans: launch, sync, other, kernel, collective, memcpy or memset."""
    spans: tuple[Span, ...]
    is_device: bool
    number: int
    """Its place among the lanes of its step."""

    def busy_us(self, begin_us: float, end_us: float) -> float:
        """Length of the union of its spans within a window."""
        return sum(end - begin for begin, end in _union(self.spans, begin_us, end_us))


def overview(
    lanes: Sequence[Lane],
    step_us: float,
    scale_us: float,
    window: tuple[float, float],
    width: float,
    title: str,
) -> Markup:
    """The whole step.

    Args:
      step_us: its length; what is right of it is empty.
      scale_us: what the whole width stands for.
      window: the part that the detail shows.
    """
    x = axes.Scale(0.0, scale_us, _SIDE_MARGIN, width - _SIDE_MARGIN)
    bottom = _base(len(lanes) - 1) + 2
    parts = [_window(x, window, bottom)]
    for row, lane in enumerate(lanes):
        base = _base(row)
        parts += [
            svg.text(_SIDE_MARGIN, base - _LANE - 4, f"{_busy(lane, step_us)} of the step", "lane"),
            svg.rect(x(0), base - _LANE, x(step_us) - x(0), _LANE, "ground"),
            *_columns(lane, x, step_us, base),
        ]
    area = Area(_SIDE_MARGIN, 0, width - _SIDE_MARGIN, bottom)
    parts += axes.x_axis(x, area, "us since the step was called", 4 if width < 500 else 9)
    told = ", ".join(_busy(lane, step_us) for lane in lanes)
    return svg.picture(width, bottom + 40, parts, title, f"The step took {step_us:,.0f} us. Busy: {told}.")


def _busy(lane: Lane, step_us: float) -> str:
    """A lane and the share of the step in which something ran in it."""
    share = lane.busy_us(0.0, step_us) / step_us
    return f"{lane.label}: {share:.0%}" if share >= 0.005 else f"{lane.label}: less than 1%"


def _window(x: axes.Scale, window: tuple[float, float], bottom: float) -> str:
    """The frame around what the detail shows."""
    begin, end = (x(at) for at in window)
    return svg.element(
        "rect", x=begin, y=2, width=max(end - begin, 2.0), height=bottom - 2, class_="window",
        data_start=x.start, data_stop=x.stop, data_us=x.high,
    )  # fmt: skip


def _columns(lane: Lane, x: axes.Scale, step_us: float, base: float) -> Iterator[str]:
    """Bars, as high as the share of their time in which something ran."""
    num = max(1, round((x(step_us) - x(0)) / _COLUMN))
    width_us = step_us / num
    filled = [0.0] * num
    for begin, end in _union(lane.spans, 0.0, step_us):
        first, last = int(begin / width_us), min(int(end / width_us), num - 1)
        for column in range(first, last + 1):
            low, high = max(begin, column * width_us), min(end, (column + 1) * width_us)
            filled[column] += max(high - low, 0.0) / width_us
    heights = [0.0 if share == 0 else max(round(_LANE * min(share, 1.0), 1), 1.0) for share in filled]
    path, column = "", 0
    while column < num:
        run = 1
        while column + run < num and heights[column + run] == heights[column]:
            run += 1
        if heights[column]:
            left = x.start + column * _COLUMN
            path += f"M{left:.0f} {base:.0f}v-{heights[column]:g}h{run * _COLUMN}V{base:.0f}z"
        column += run
    if path:
        yield svg.element("path", d=path, class_=f"span {lane.kind}")


def detail(lanes: Sequence[Lane], window: tuple[float, float], width: float, title: str) -> Markup:
    """The spans of a short window, with names where there is room, in those lanes that have any there.

    Other lanes are in the picture too and not shown: the script shows them once its window reaches a span.
    """
    x = axes.Scale(*window, _SIDE_MARGIN, width - _SIDE_MARGIN)
    counts = {lane: sum(_within(span, window) for span in lane.spans) for lane in lanes}
    parts, row = [], 0
    for lane, count in counts.items():
        parts.append(_lane(lane, x, row, is_shown=count > 0))
        row += count > 0
    area = Area(_SIDE_MARGIN, 0, width - _SIDE_MARGIN, 0)
    ticks = axes.x_axis(x, area, "us since the step was called", 4 if width < 500 else 9)
    parts.append(
        svg.element(
            "g", "".join(ticks),
            class_="ticks", transform=f"translate(0 {row * _PITCH})",
            data_start=x.start, data_stop=x.stop, data_pitch=_PITCH,
        )
    )  # fmt: skip
    seen = ", ".join(f"{lane.label} {count}" for lane, count in counts.items() if count)
    words = f"From {window[0]:,.0f} to {window[1]:,.0f} us. Spans: {seen or 'none'}."
    return svg.picture(width, row * _PITCH + 40, parts, title, words)


def _lane(lane: Lane, x: axes.Scale, row: int, *, is_shown: bool) -> str:
    """A lane as a group that can be moved and shown; all its places are those of the first row."""
    base = _base(0)
    parts = [
        svg.text(_SIDE_MARGIN, base - _LANE - 4, lane.label, "lane"),
        svg.rect(x.start, base - _LANE, x.stop - x.start, _LANE, "ground"),
        svg.element(
            "g", "".join(_spans(lane, x, base)), class_="spans", data_lane=lane.number, data_base=base
        ),
    ]
    hidden = {} if is_shown else {"display": "none"}
    return svg.element("g", "".join(parts), class_="row", transform=f"translate(0 {row * _PITCH})", **hidden)


def _spans(lane: Lane, x: axes.Scale, base: float) -> Iterator[str]:
    for span in lane.spans:
        if not _within(span, (x.low, x.high)):
            continue
        begin, end = x(span.begin_us), x(span.end_us)
        title = f"{span.name}, {span.duration_us:.4g} us at {span.begin_us:.4g} us"
        yield svg.rect(begin, base - _LANE, max(end - begin - 0.6, 0.6), _LANE, f"span {lane.kind}", title)
        words = fitting(short(span.name), int((end - begin - 6) / _CHARACTER))
        if words:
            yield svg.text(begin + 3, base - 7, words, "inside")


def fitting(name: str, letters: int) -> str:
    """As much of a name as there is room for; nothing where that would say nothing."""
    if len(name) <= letters:
        return name
    return f"{name[: letters - 1]}\u2026" if letters >= 5 else ""


def _within(span: Span, window: tuple[float, float]) -> bool:
    return span.begin_us < window[1] and span.end_us > window[0]


def _union(spans: Sequence[Span], begin_us: float, end_us: float) -> Iterator[tuple[float, float]]:
    """The intervals in which a span ran, none touching another, cut to a window."""
    open_begin, open_end = 0.0, -1.0
    for span in sorted(spans, key=lambda span: span.begin_us):
        begin, end = max(span.begin_us, begin_us), min(span.end_us, end_us)
        if end <= begin:
            continue
        if begin <= open_end:
            open_end = max(open_end, end)
            continue
        if open_end > open_begin:
            yield open_begin, open_end
        open_begin, open_end = begin, end
    if open_end > open_begin:
        yield open_begin, open_end


def _base(row: int) -> float:
    """Where a lane ends, from above."""
    return _TOP + (row + 1) * _PITCH - _GAP
