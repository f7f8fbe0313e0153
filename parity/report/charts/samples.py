"""Raw samples, every one of them: for each name a histogram and beneath it a strip of marks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from parity.report.charts import axes, svg
from parity.report.charts.svg import Area

_MARGIN, _HISTOGRAM, _STRIP, _ROW = 12, 40, 22, 96
_BINS = 30
_LOG_ABOVE = 8.0
"""Where the largest is as many times the smallest, the axis goes by decades."""


@dataclass(frozen=True)
class Samples:
    """The samples of one name."""

    label: str
    number: int
    """Decides the colour."""
    passes: tuple[tuple[float, ...], ...]
    """Samples of each pass in the order it was run; a pass has its own marker."""
    median: float
    p10: float
    p90: float

    @property
    def all(self) -> list[float]:
        """Of all passes."""
        return [sample for one in self.passes for sample in one]


def draw(groups: Sequence[Samples], width: float, words: str, title: str, description: str) -> Markup:
    """The picture, as wide as asked for; all groups share one axis.

    Args:
      words: what is on the axis, with its unit.
    """
    values = [sample for group in groups for sample in group.all]
    log = max(values) > _LOG_ABOVE * min(values) > 0
    make = axes.decades if log else axes.linear
    x = make(values, _MARGIN, width - _MARGIN)
    edges = _edges(x)
    most = max(max(_counts(group.all, edges)) for group in groups)
    parts: list[str] = []
    for row, group in enumerate(groups):
        parts += _row(group, x, edges, most, _ROW * row)
    area = Area(_MARGIN, 0, width - _MARGIN, _ROW * len(groups) + 2)
    ticks = axes.x_axis(x, area, f"{words}{', by decades' if log else ''}", 5 if width < 500 else 9)
    return svg.picture(width, area.bottom + 40, [*parts, *ticks], title, description)


def _row(group: Samples, x: axes.Scale, edges: Sequence[float], most: int, top: float) -> Iterator[str]:
    style, base = f"s{group.number % 4}", top + 22 + _HISTOGRAM
    yield svg.text(_MARGIN, top + 14, group.label, "name")
    for low, high, count in zip(edges, edges[1:], _counts(group.all, edges), strict=False):
        height = _HISTOGRAM * count / most
        title = f"{count} windows of {low:.4g} to {high:.4g}"
        if count:
            yield svg.rect(x(low) + 0.5, base - height, x(high) - x(low) - 1, height, f"bar {style}", title)
    yield svg.line(x.start, base, x.stop, base, "axis")
    middle = base + 4 + _STRIP / 2
    yield svg.rect(x(group.p10), middle - 9, x(group.p90) - x(group.p10), 18, f"range {style}")
    for number, samples in enumerate(group.passes):
        for index, sample in enumerate(samples):
            yield svg.marker(number, x(sample), middle + (index * 2 % 5 - 2) * 3, f"dot {style}", 2.6)
    yield svg.line(x(group.median), middle - 12, x(group.median), middle + 12, "median")


def _edges(x: axes.Scale) -> list[float]:
    """Borders of the bins, as wide as each other on the axis."""
    if x.log:
        low, high = math.log10(x.low), math.log10(x.high)
        return [10 ** (low + (high - low) * index / _BINS) for index in range(_BINS + 1)]
    return [x.low + (x.high - x.low) * index / _BINS for index in range(_BINS + 1)]


def _counts(values: Sequence[float], edges: Sequence[float]) -> list[int]:
    last = len(edges) - 2
    found = [0] * (last + 1)
    for value in values:
        index = sum(edge <= value for edge in edges) - 1
        found[min(max(index, 0), last)] += 1
    return found
