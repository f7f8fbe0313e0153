"""A run that changes sides: which of them trains which steps.

Must not: judge; `judge/chain.py` makes the stretches one run that can be judged as any other.
"""

from dataclasses import dataclass
from itertools import pairwise

from spec.errors import RuleError


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Steps [first, stop) on one side."""

    side: str
    first: int
    stop: int


def parse_handoff(text: str | None, backends: tuple[str, ...], steps: int) -> tuple[Stretch, ...]:
    """The stretches of `20,40`, the sides in turn, the first of `backends` first; none where none is asked.

    Raises:
      RuleError: the steps do not rise within the run, or only one side runs.
    """
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",")]
    bounds = [0, *(int(word) for word in words if word.isdigit()), steps]
    if not all(word.isdigit() for word in words) or sorted(set(bounds)) != bounds:
        raise RuleError(
            "Sides change at rising steps within the run.",
            f"--handoff {text}, {steps} steps",
            f"for example --handoff {max(1, steps // 3)},{max(2, 2 * steps // 3)}",
        )
    if len(backends) != 2:
        raise RuleError("A hand-off is between two sides.", f"--backend {','.join(backends)}", "run both")
    return tuple(
        Stretch(side=backends[number % 2], first=first, stop=stop)
        for number, (first, stop) in enumerate(pairwise(bounds))
    )
