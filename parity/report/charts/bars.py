"""Amounts by name as lying bars, the amount written at each."""

from collections.abc import Sequence

from markupsafe import Markup

from parity.report.charts import svg

_ROW = 24


def draw(
    amounts: Sequence[tuple[str, float, str]], width: float, style: str, title: str, description: str
) -> Markup:
    """The picture, as wide as asked for.

    Args:
      amounts: a name, its amount, and how that is written, in the order of the picture.
      style: class of the bars.
    """
    names = 16 + 7.4 * max(len(name) for name, _, _ in amounts)
    room = width - names - 14 - 7.2 * max(len(written) for _, _, written in amounts)
    most = max((amount for _, amount, _ in amounts), default=0) or 1.0
    parts: list[str] = []
    for row, (name, amount, written) in enumerate(amounts):
        y, length = row * _ROW, max(room * amount / most, 1.0)
        parts += [
            svg.text(names - 10, y + 16, name, "label", "end"),
            svg.rect(names, y + 4, length, _ROW - 8, f"bar {style}"),
            svg.text(names + length + 6, y + 16, written, "tick"),
        ]
    return svg.picture(width, _ROW * len(amounts) + 2, parts, title, description)
