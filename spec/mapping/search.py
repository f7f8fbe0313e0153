"""Settles what a proposal leaves open: tries candidates, the likeliest first, until both sides compute alike.

Must not: compute a model; a side does, and says how far apart its loss and gradients are.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from spec.mapping.links import Link, check
from spec.mapping.propose import Proposal

AGREE = 1e-3
"""A wrong partner or a missing transpose moves some gradient by about its own size; a mere difference of
conventions, an epsilon say, moves none by this much, and is the judge's to find."""

MOST_CANDIDATES = 200
MOST_OF_A_SMALL_MODEL = 4000
"""A candidate of a small model takes milliseconds, and its tensors are often alike: the gates of a cell."""
_SMALL = 20_000
"""Elements of a small model."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far apart both sides are under one candidate."""

    loss: float
    """Relative difference of the sum of losses."""
    gradients: dict[str, float]
    """RMS of each gradient's difference / its RMS, by torch name."""

    @property
    def distance(self) -> float:
        """The mean over gradients, each counted as 1 at most: what the search makes small."""
        return sum(min(1.0, apart) for apart in self.gradients.values()) / max(1, len(self.gradients))

    @property
    def worst(self) -> tuple[str, float]:
        """The gradient that is farthest apart."""
        return max(self.gradients.items(), key=lambda item: item[1], default=("", 0.0))

    @property
    def holds(self) -> bool:
        """Whether the candidate is proven."""
        return self.loss <= AGREE and self.worst[1] <= AGREE


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the search settled on."""

    links: tuple[Link, ...]
    agreement: Agreement
    tried: int
    settled: tuple[str, ...]
    """Choices that were not decided as names and shapes alone suggest."""
    untried: int = 0
    """Candidates that were left when the search ended without a proof."""


def most_candidates(elements: int) -> int:
    """How many candidates are tried for a model of so many elements."""
    return MOST_OF_A_SMALL_MODEL if elements <= _SMALL else MOST_CANDIDATES


def search(
    proposal: Proposal, evaluate: Callable[[tuple[Link, ...]], Agreement], most: int = MOST_CANDIDATES
) -> Found:
    """The first candidate that is proven; the likeliest of the nearest ones where none is.

    Args:
      evaluate: what a side finds under some links, which are one-to-one.
      most: candidates that are tried at most.
    """
    best: Found | None = None
    for number, chosen in enumerate(_likeliest_first(proposal), start=1):
        links = proposal.links(chosen)
        check(links)
        agreement = evaluate(links)
        if best is None or agreement.holds or agreement.distance < 0.9 * best.agreement.distance:
            changed = [
                choice.about for choice, option in zip(proposal.choices, chosen, strict=True) if option
            ]
            best = Found(links=links, agreement=agreement, tried=number, settled=tuple(changed))
        if agreement.holds or number == most:
            break
    assert best is not None
    left = math.prod(len(choice.options) for choice in proposal.choices) - number
    return replace(best, tried=number, untried=0 if best.agreement.holds else left)


def _likeliest_first(proposal: Proposal) -> Iterator[tuple[int, ...]]:
    """One option of each choice, in the order of their costs together."""
    start = (0,) * len(proposal.choices)
    heap, seen = [(0.0, start)], {start}
    while heap:
        cost, chosen = heapq.heappop(heap)
        yield chosen
        for k, choice in enumerate(proposal.choices):
            number = chosen[k] + 1
            if number < len(choice.options):
                extra = choice.options[number][0] - choice.options[number - 1][0]
                following = (*chosen[:k], number, *chosen[k + 1 :])
                if following not in seen:
                    seen.add(following)
                    heapq.heappush(heap, (cost + extra, following))
