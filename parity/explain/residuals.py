"""What is left between the two sides after one step from the same states, and what rounding would leave.

    reference = Reference.read(folder of the JAX side's lockstep pass, with reruns)
    left = reference.against(folder of the torch side's lockstep pass)
    left.failing()[0]    the first number or tensor that differs in meaning

Differences are a - b, torch less JAX, in units of the tensor's scale. Must not: keep files open.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from parity.judge import rule
from parity.judge.align import Measured
from parity.judge.evidence import CAUSAL_ORDER
from parity.judge.measures import rms
from parity.judge.order import Named, shared
from parity.judge.steps import SCALARS, Steps, reruns

_GROUP_SHARE = 1e-6
_TIMES_ROUNDING = 64.0
"""A difference that rounding could have made up to so many times over is none."""


class Key(NamedTuple):
    """One number or tensor of one step."""

    step: int
    phase: str
    tensor: str
    """Empty for one number a step."""

    def __str__(self) -> str:
        return f"{self.phase} of step {self.step}" + (f", {self.tensor}" if self.tensor else "")


@dataclass(frozen=True)
class Left:
    """All that differs or might, by key, in causal order."""

    differences: dict[Key, np.ndarray]
    """a - b, over the scale."""
    rms: dict[Key, float]
    """RMS of that; infinite where one side alone is not finite."""
    beyond: dict[Key, bool]
    """Whether rounding cannot have made it."""

    @cached_property
    def failing(self) -> list[Key]:
        """What differs in meaning: earliest phase first, then by step and as it is computed."""
        found = [key for key, beyond in self.beyond.items() if beyond]
        return sorted(found, key=lambda key: (CAUSAL_ORDER.index(key.phase), key.step))

    @property
    def phase(self) -> str | None:
        """The earliest phase that differs."""
        return self.failing[0].phase if self.failing else None

    @cached_property
    def phases(self) -> set[str]:
        """Every phase that was compared."""
        return {key.phase for key in self.beyond}


@dataclass(frozen=True)
class Bound:
    """How far rounding can carry one tensor, over its scale."""

    s: float
    rms: float
    worst: float


class Reference:
    """The JAX side's steps in memory."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._values: dict[tuple[int, str, str], np.ndarray] = {}
        self._noise: dict[tuple[int, str, str], list[np.ndarray]] = {}
        self._names: dict[Key, str] = {}
        with Steps(measured) as steps:
            self._values = dict(_all(steps))
        for again in reruns(measured):
            with again as steps:
                for key, array in _all(steps):
                    self._noise.setdefault(key, []).append(array)

    def against(self, folder: Path) -> Left:
        """What is left between this side and a torch pass from the same states."""
        differences: dict[Key, np.ndarray] = {}
        sizes: dict[Key, float] = {}
        beyond: dict[Key, bool] = {}
        with Steps(Measured("torch", folder)) as a, Steps(self._measured) as b:
            for step in b.numbers:
                for key, value, other, bound in self._pairs(a, b, step):
                    with np.errstate(invalid="ignore"):
                        difference = (value - other) / bound.s
                    alike = (value == other) | (np.isnan(value) & np.isnan(other))
                    difference = np.where(alike, 0.0, difference)
                    finite = bool(np.isfinite(difference).all())
                    differences[key] = difference
                    sizes[key] = rms(difference) if finite else float("inf")
                    beyond[key] = not finite or _is_beyond(difference, value / bound.s, bound)
        return Left(differences, sizes, beyond)

    def values(self, key: Key) -> np.ndarray:
        """The JAX side's own values; of parameters, their updates."""
        return self._values[key.step, key.phase, self.name(key)]

    def name(self, key: Key) -> str:
        """The tensor's name in the JAX side's files; activations of a user's pair have their own."""
        return self._names.get(key, key.tensor)

    def _pairs(self, a: Steps, b: Steps, step: int):  # type: ignore[no-untyped-def]
        for phase in CAUSAL_ORDER:
            if phase in SCALARS:
                value, other = np.array(a.scalar(step, phase)), self._values[step, phase, ""]
                yield Key(step, phase, ""), value, other, self._bound((step, phase, ""), other, 0.0, None)
            elif phase in b.phases(step):
                found = [named for named in shared(a, b, step, phase).both if not _zero_gradient(named)]
                group = rms(
                    np.concatenate(
                        [self._values[step, phase, one.b].ravel() for one in found] or [np.zeros(1)]
                    )
                )
                for named in found:
                    whole = (step, phase, named.b)
                    other = named.cut(named.turned(self._values[whole]))
                    value = named.cut(a.read(step, phase, named.a))
                    self._names[Key(step, phase, named.title)] = named.b
                    yield Key(step, phase, named.title), value, other, self._bound(whole, other, group, named)

    def _bound(
        self, key: tuple[int, str, str], other: np.ndarray, group: float, named: Named | None
    ) -> Bound:
        s = max(rms(other), _GROUP_SHARE * group, 1e-300)
        far, worst = 0.0, 0.0
        for again in self._noise.get(key, ()):
            array = again if named is None else named.cut(named.turned(again))
            moved = np.abs(array - other)
            if np.isfinite(moved).all():
                far = max(far, rms(moved) / s)
                worst = max(worst, float((moved / np.maximum(np.abs(other), s)).max(initial=0.0)))
        return Bound(
            s,
            max(rule.SEMANTIC_RMS, _TIMES_ROUNDING * far),
            max(rule.SEMANTIC_WORST, _TIMES_ROUNDING * worst),
        )


def _is_beyond(difference: np.ndarray, value: np.ndarray, bound: Bound) -> bool:
    worst = float((np.abs(difference) / np.maximum(np.abs(value), 1.0)).max(initial=0.0))
    return rms(difference) > bound.rms or worst > bound.worst


def _zero_gradient(named: Named) -> bool:
    """Rows whose exact gradient is zero hold rounding alone."""
    return named.title != named.a


def _all(steps: Steps):  # type: ignore[no-untyped-def]
    """Every number and tensor of a pass."""
    for step in steps.numbers:
        for name in SCALARS:
            yield (step, name, ""), np.array(steps.scalar(step, name))
        for phase in steps.phases(step) - {"batch"}:
            for name in steps.names(step, phase):
                yield (step, phase, name), steps.read(step, phase, name)
