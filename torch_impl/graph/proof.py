"""Whether a captured step trains as the same step does operation by operation: from one state, on equal rows.

What the host computes anew in every step, such as a counter or a learning rate, a graph holds as it was when
it was captured, and replays it without an error: the first step is right and later ones are not. Must not:
know how a step is captured.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

STEPS = 3
"""A rate that is set after an update acts in the next one; in the third, a replay has one of the second."""
_TIMES = 8.0
"""Floors that replays may be apart; the floor is how far the eager steps are from themselves, made again."""

Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """Where replays leave the steps that they were captured from."""

    step: int
    """Counted from 1: the first step in which they differ."""
    tensor: str
    """The first that differs there."""
    apart: float
    """RMS of the difference over the distance that the eager steps carried the tensor."""
    norms: dict[str, list[float]]
    """Of the update of every step, `captured` and `eager`."""

    def __str__(self) -> str:
        shown = {way: ", ".join(f"{norm:.3g}" for norm in norms) for way, norms in self.norms.items()}
        before = f"steps before {self.step} are equal; " if self.step > 1 else ""
        return (
            f"{before}in step {self.step} {self.tensor} is {self.apart:.1e} of its way off; "
            f"norms of the updates captured {shown['captured']}, eager {shown['eager']}"
        )


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the steps in both ways came to."""

    frozen: Frozen | None
    """None where replays are as far from the eager steps as these are from themselves."""
    floors: dict[str, float]
    """By tensor that moved, how far the eager steps are from themselves, made again: of its way, in the worst
    step."""
    moved: int
    """Eager steps in which some parameter moved; the others compare nothing."""

    @property
    def floor(self) -> float:
        """The largest of all tensors: 0 where the eager steps repeat to the bit."""
        return max(self.floors.values(), default=0.0)

    @property
    def usual_floor(self) -> float:
        """That of the tensor in the middle: some may be nothing but rounding, as is a bias before a norm."""
        return statistics.median(self.floors.values()) if self.floors else 0.0


def find_frozen(
    eager: Callable[[], None],
    replay: Callable[[], None],
    put_back: Callable[[], None],
    parameters: Callable[[], Tensors],
    least: float = 0.0,
) -> Found:
    """Makes `STEPS` steps in both ways and compares the parameters after each.

    The state is afterwards where the last replay left it.

    Args:
      eager, replay: make one step.
      put_back: puts all state to where it was before the first.
      parameters: by name, as they are now.
      least: of a tensor's way, what atomics may part that made the eager steps alike by chance; 0 asks for
        equal bits where the eager steps repeat to the bit.
    """
    start = _copies(parameters())
    expected = list(_steps(eager, parameters))
    put_back()
    again = _steps(eager, parameters)
    floors = [_apart(one, other, start) for one, other in zip(expected, again, strict=True)]
    put_back()
    replays = list(_steps(replay, parameters))
    norms = {"captured": _norms([start, *replays]), "eager": _norms([start, *expected])}
    worst = {name: max(floor[name] for floor in floors) for name in start}
    still = {name for name in start if not any(_distance(one[name], start[name]) for one in expected)}
    return Found(
        frozen=_first_apart(expected, replays, floors, start, norms, least),
        floors={name: floor for name, floor in worst.items() if floor or name not in still},
        moved=sum(norm > 0 for norm in norms["eager"]),
    )


def _first_apart(
    expected: list[Tensors],
    replays: list[Tensors],
    floors: list[dict[str, float]],
    start: Tensors,
    norms: dict[str, list[float]],
    least: float,
) -> Frozen | None:
    for step, (one, other, floor) in enumerate(zip(expected, replays, floors, strict=True), start=1):
        for name, apart in _apart(one, other, start).items():
            if apart > max(_TIMES * floor[name], least):
                return Frozen(step=step, tensor=name, apart=apart, norms=norms)
    return None


def _steps(make: Callable[[], None], parameters: Callable[[], Tensors]) -> Iterator[Tensors]:
    """The parameters after each step, on the host."""
    for _ in range(STEPS):
        make()
        yield _copies(parameters())


def _copies(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _apart(one: Tensors, other: Tensors, start: Tensors) -> dict[str, float]:
    """RMS of each tensor's difference over how far `one` is from the start."""
    found = {}
    for name, values in one.items():
        difference, way = _distance(values, other[name]), _distance(values, start[name])
        found[name] = 0.0 if difference == 0 else difference / way if way else math.inf
    return found


def _norms(states: list[Tensors]) -> list[float]:
    """Of the update between each state and the next."""
    return [
        math.hypot(*(_distance(values, after[name]) for name, values in before.items()))
        for before, after in itertools.pairwise(states)
    ]


def _distance(one: Tensor, other: Tensor) -> float:
    """2-norm of the difference; 0 for equal bits, be they NaN."""
    if torch.equal(*(tensor.reshape(-1).view(torch.uint8) for tensor in (one, other))):
        return 0.0
    found = float(torch.linalg.vector_norm((one - other).double()))
    return found if math.isfinite(found) else math.inf
