"""Differences around zero, their mean with its interval, and the margin that they should stay within."""

from collections.abc import Sequence

from markupsafe import Markup

from parity.report.charts import axes, svg
from parity.report.charts.svg import Area

_MARGIN, _TOP, _BOTTOM = 12, 24, 110


def draw(
    values: Sequence[float],
    mean: float | None,
    interval: Sequence[float],
    margin: float,
    width: float,
    words: str,
    title: str,
    description: str,
) -> Markup:
    """The picture, as wide as asked for.

    Args:
      interval: its ends; empty where there is none.
      words: what is on the axis.
    """
    x = axes.linear([*values, *interval, margin, -margin], _MARGIN, width - _MARGIN)
    area = Area(_MARGIN, _TOP, width - _MARGIN, _BOTTOM)
    parts = [
        svg.rect(x(-margin), _TOP, x(margin) - x(-margin), _BOTTOM - _TOP, "band"),
        *(svg.line(x(end), _TOP, x(end), _BOTTOM, "bound") for end in (-margin, margin)),
        svg.line(x(0.0), _TOP, x(0.0), _BOTTOM, "grid"),
        svg.text(x(0.0), _TOP - 8, "within the margin", "note", "middle"),
    ]
    parts += [
        svg.marker(0, x(value), _TOP + 20 + (index * 2 % 5) * 5, "dot s3", 3.0)
        for index, value in enumerate(values)
    ]
    if interval:
        parts.append(svg.rect(x(interval[0]), _BOTTOM - 28, x(interval[1]) - x(interval[0]), 14, "bar s3"))
    if mean is not None:
        parts.append(svg.line(x(mean), _BOTTOM - 32, x(mean), _BOTTOM - 10, "median"))
    ticks = axes.x_axis(x, area, words, 5 if width < 500 else 9)
    return svg.picture(width, _BOTTOM + 40, [*parts, *ticks], title, description)
