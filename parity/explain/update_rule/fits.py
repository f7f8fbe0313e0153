"""One form fitted to one side: how much it leaves, and how much there is to write down.

Must not: fit.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from parity.explain.update_rule.forms import Rule, updates
from parity.explain.update_rule.observed import Observed
from parity.explain.update_rule.shapes import Shape, shape_of

SMALL = 1e-12
"""A rule reproduces what it leaves so little of, relative to the update, or no more than rounding would."""
_MOST_DIGITS = 4
"""Constants that somebody wrote have no more."""


@dataclass(frozen=True)
class Fit:
    """One form fitted to one side."""

    rule: Rule
    residual: float
    """RMS of what is left over the RMS of the update, at the worst tensor and step."""
    excess: float
    """The same in units of what is allowed; at most 1 where the rule reproduces the side."""

    @cached_property
    def shape(self) -> Shape:
        """Of the learning rates."""
        return shape_of(self.rule.rates_S)

    @property
    def reproduces(self) -> bool:
        """Whether rounding alone is left."""
        return self.excess <= 1.0

    @property
    def is_plain(self) -> bool:
        """Whether it reproduces the side with numbers that somebody wrote."""
        known = self.reproduces and self.shape.known
        return known and all(_digits(value) <= _MOST_DIGITS for value in self.rule.values.values())

    @property
    def length(self) -> float:
        """How much there is to write down: digits of the constants, and of the learning rates' shape."""
        numbers = [*self.rule.values.values(), *{float(decay) for decay in self.rule.decay_T}]
        return sum(_digits(number) for number in numbers) + self.shape.length


def judged(rule: Rule, seen: Observed) -> Fit:
    """How well a rule with all its constants reproduces a side."""
    left_ST = seen.rms(seen.updates_SN - updates(rule, seen))
    allowed_ST = np.maximum(SMALL * seen.size_ST, seen.rounding_ST)
    relative_ST = left_ST / np.maximum(np.maximum(seen.size_ST, seen.rounding_ST / SMALL), 1e-300)
    finite = bool(np.isfinite(left_ST).all())
    return Fit(
        rule,
        float(relative_ST.max()) if finite else float("inf"),
        float((left_ST / np.maximum(allowed_ST, 1e-300)).max()) if finite else float("inf"),
    )


def _digits(number: float) -> int:
    short = f"{number:.9g}" if number < 0.5 else f"{1 - number:.6g}"
    return len(short.partition("e")[0].replace(".", "").replace("-", "").strip("0"))
