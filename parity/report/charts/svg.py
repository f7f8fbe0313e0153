"""The pieces that every picture is made of: elements, words, and the frame with its text for who cannot see.

Must not: know what is drawn. Words and attributes are escaped here and nowhere else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

Point = tuple[float, float]


@dataclass(frozen=True)
class Area:
    """The part of a picture that data are drawn in; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float


def element(name: str, content: str = "", **attributes: object) -> str:
    """One element. `class_` is `class`, other underscores become dashes; numbers keep two decimals.

    Args:
      content: markup; words go through `text`.
    """
    written = "".join(f' {_attribute(key)}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(x: float, y: float, words: object, class_: str = "", anchor: str = "start") -> str:
    """Words at a place; `anchor` is start, middle or end."""
    return element("text", escape(str(words)), x=x, y=y, class_=class_ or "label", text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def rect(x: float, y: float, width: float, height: float, class_: str, title: str = "") -> str:
    """A rectangle; its title shows when a pointer rests on it."""
    words = element("title", escape(title)) if title else ""
    return element("rect", words, x=x, y=y, width=max(width, 0.0), height=max(height, 0.0), class_=class_)


def polyline(points: Sequence[Point], class_: str) -> str:
    """A line through points."""
    return element("polyline", points=_places(points), class_=class_)


def polygon(points: Sequence[Point], class_: str) -> str:
    """A closed area between points."""
    return element("polygon", points=_places(points), class_=class_)


def _places(points: Sequence[Point]) -> str:
    return " ".join(f"{_short(x)},{_short(y)}" for x, y in points)


def marker(kind: int, x: float, y: float, class_: str, size: float = 3.2) -> str:
    """A mark by number: a disc, a square, a triangle, a diamond, a triangle on its head, a cross."""
    shape = kind % 6
    if shape == 0:
        return element("circle", cx=x, cy=y, r=size, class_=class_)
    if shape == 1:
        return rect(x - size * 0.9, y - size * 0.9, size * 1.8, size * 1.8, class_)
    corners = {
        2: [(0, -1.25), (1.15, 0.85), (-1.15, 0.85)],
        3: [(0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)],
        4: [(0, 1.25), (1.15, -0.85), (-1.15, -0.85)],
        5: [
            (0.4, 0.4), (0.4, 1.3), (-0.4, 1.3), (-0.4, 0.4), (-1.3, 0.4), (-1.3, -0.4),
            (-0.4, -0.4), (-0.4, -1.3), (0.4, -1.3), (0.4, -0.4), (1.3, -0.4), (1.3, 0.4),
        ],
    }[shape]  # fmt: skip
    return polygon([(x + size * dx, y + size * dy) for dx, dy in corners], class_)


def picture(width: float, height: float, parts: Iterable[str], title: str, description: str) -> Markup:
    """The whole picture.

    Args:
      width, height: of its own coordinates; the page scales it.
      title: what it shows, in a few words.
      description: what can be read off it, for who cannot see it.
    """
    words = element("title", escape(title)) + element("desc", escape(description))
    return Markup(
        element(
            "svg",
            words + "".join(parts),
            viewBox=f"0 0 {_short(width)} {_short(height)}",
            role="img",
            aria_label=f"{title}. {description}",
            class_="chart",
        )
    )


def _attribute(key: str) -> str:
    return key if key == "viewBox" else key.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
    return _short(value) if isinstance(value, float) else escape(str(value))


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
