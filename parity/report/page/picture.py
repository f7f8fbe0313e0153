"""A picture as the page shows it, with its caption: drawn for a wide screen or paper, and for a phone."""

from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

WIDE, NARROW = 920, 360


@dataclass(frozen=True)
class Picture:
    """Both drawings; the style sheet shows one."""

    wide: Markup
    narrow: Markup
    caption: str


def both(draw: Callable[[float], Markup], caption: str) -> Picture:
    """The two drawings of a function of the width."""
    return Picture(draw(WIDE), draw(NARROW), caption)
