"""Scales from values to places, their round ticks, and the axes drawn from them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from parity.report.charts.svg import Area, line, text


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` on places from `start` to `stop`, evenly or by decades."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False
    whole: bool = False
    """Whether only whole numbers have ticks."""

    def __call__(self, value: float) -> float:
        """The place of a value; one outside lies on the border."""
        low, high, value = (self._even(one) for one in (self.low, self.high, value))
        share = (value - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.stop - self.start)

    def _even(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value

    def ticks(self, most: int = 6) -> list[tuple[float, str]]:
        """Round values within the scale, and how they are written; about `most`."""
        return list(_decades(self, most) if self.log else _rounds(self, most))


def linear(values: Iterable[float], start: float, stop: float, *, whole: bool = False) -> Scale:
    """An even scale that holds all values, with a little room."""
    low, high = _range(values)
    if high == low:
        room = abs(high) / 2 or 1.0
        low, high = low - room, high + room
    room = (high - low) * 0.04
    return Scale(low - room, high + room, start, stop, whole=whole)


def decades(values: Iterable[float], start: float, stop: float) -> Scale:
    """A logarithmic scale that holds all positive values, with a little room on both sides."""
    low, high = _range(value for value in values if value > 0)
    low, high = math.log10(low or 1.0), math.log10(high or 1.0)
    room = max((high - low) * 0.08, 0.1)
    return Scale(10 ** (low - room), 10 ** (high + room), start, stop, log=True)


def _range(values: Iterable[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (0.0, 0.0)


def _rounds(scale: Scale, most: int) -> Iterator[tuple[float, str]]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (scale.high - scale.low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    step = max(step, 1.0) if scale.whole else step
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    number = math.ceil(scale.low / step - 1e-9)
    while number * step <= scale.high + step * 1e-9:
        value = number * step
        yield value, f"{value:,.{digits}f}"
        number += 1


def _decades(scale: Scale, most: int) -> Iterator[tuple[float, str]]:
    """Powers of ten, thinned; 2 and 5 between them where there are few."""
    first, last = math.ceil(math.log10(scale.low)), math.floor(math.log10(scale.high))
    stride = max(1, math.ceil((last - first + 1) / most))
    factors = (1, 2, 5) if last - first < 2 else (1,)
    for power in range(first - 1, last + 1, stride):
        for factor in factors:
            value = factor * 10.0**power
            if scale.low <= value <= scale.high:
                yield value, _power(value)


def _power(value: float) -> str:
    return f"{value:g}" if 1e-3 <= value < 1e5 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def x_axis(scale: Scale, area: Area, words: str, ticks: int | Sequence[tuple[float, str]] = 6) -> list[str]:
    """Ticks and words under an area.

    Args:
      ticks: about how many round values, or values of one's own and how they are written.
    """
    drawn = [line(area.left, area.bottom, area.right, area.bottom, "axis")]
    for value, label in scale.ticks(ticks) if isinstance(ticks, int) else ticks:
        x = scale(value)
        drawn += [
            line(x, area.bottom, x, area.bottom + 4, "axis"),
            text(x, area.bottom + 16, label, "tick", "middle"),
        ]
    return [*drawn, text((area.left + area.right) / 2, area.bottom + 33, words, "label", "middle")]


def y_axis(scale: Scale, area: Area, words: str, most: int = 5) -> list[str]:
    """Lines across an area with their values left of it, and words above it."""
    drawn = []
    for value, label in scale.ticks(most):
        y = scale(value)
        drawn += [
            line(area.left, y, area.right, y, "grid"),
            text(area.left - 6, y + 4, label, "tick", "end"),
        ]
    return [*drawn, text(0, area.top - 9, words, "label")]
