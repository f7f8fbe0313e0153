"""How far apart two ways to make one step are, in floors of rounding, over all its numbers and tensors.

The floor of a tensor is that of a measured run: how far reruns with noise move it, in torch eager and in jax
jit, the two ways that everybody has. It is one unit for all edges. Must not: start a process, or charge.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parity.attribution.passes import PROMOTED, TRUTH, Made
from parity.judge import rule
from parity.judge.evidence import CAUSAL_ORDER
from parity.judge.floors import Floor, Least, floor, larger, least, measured_against, within
from parity.judge.likeness import Likeness, liken
from parity.judge.measures import rms
from parity.judge.order import Named, shared
from parity.judge.steps import SCALARS, Steps, reruns
from spec.precision import UNIT_ROUNDOFF

_NOISY = ("torch eager", "jax jit")
_EAGER_FORWARD = ("torch inductor", "torch graph")
"""Ways whose activations are observed in a forward pass of eager mode: they tell nothing of the way."""


@dataclass(frozen=True)
class Place:
    """One number or tensor, as every way made it."""

    name: str
    values: dict[str, np.ndarray]
    s: float
    phi: Floor


@dataclass(frozen=True, kw_only=True)
class Apart:
    """How far apart two ways are."""

    floors: float
    where: str
    rms_rel: float
    equal: bool
    """Whether in float64 they are one meaning, by rule 1."""
    value: dict[str, float]
    """RMS of a way from its side's truth at `where`, over the scale; without those that have no truth."""


class Comparison:
    """All places of one step in memory."""

    def __init__(self, made: Made) -> None:
        self._made = made
        problem = made.passes[_NOISY[0]].job.spec.problem
        self._u, self._optimizer = problem.profile.unit_roundoff, problem.optimizer
        self.places = list(self._read())
        self._by_name = {place.name: place for place in self.places}

    @property
    def bound(self) -> float:
        """Floors that rounding may make."""
        return self._times

    def apart(self, one: str, other: str) -> Apart | None:
        """The difference of two ways; None where one of them is missing."""
        found: list[tuple[Place, float, float]] = []
        equal = True
        for place in self.places:
            if one not in place.values or other not in place.values:
                continue
            a, b = place.values[one], place.values[other]
            if np.array_equal(a, b, equal_nan=True):
                found.append((place, 0.0, 0.0))
                continue
            likeness = liken(a, b, place.s, self._u)
            equal = equal and (
                rule.semantically_equal(likeness, place.s, place.phi, self._u)
                or self._rounding_alone(place, likeness, one, other)
            )
            found.append((place, *self._floors(a, b, place)))
        if not found:
            return None
        beyond = [item for item in found if item[1] > self._times]
        first = beyond[0] if beyond else max(found, key=lambda item: item[1])
        return Apart(
            floors=max(item[1] for item in found),
            where=first[0].name,
            rms_rel=first[2],
            equal=equal,
            value={way: self._error(way, first[0]) for way in (one, other) if self.truth(way.split()[0])},
        )

    def _rounding_alone(self, place: Place, likeness: Likeness, one: str, other: str) -> bool:
        """Whether AdamW made an update of rounding on both ways, and nothing else parts it."""
        phase, _, title = place.name.partition(", ")
        m, v, lr = (self._by_name.get(name) for name in (f"m, {title}", f"v, {title}", "lr"))
        if phase != "param" or not (m and v and lr) or rule.visible(likeness, place.s, place.phi):
            return False
        moments = [
            rule.Moments(m=m.values[way], v=v.values[way], lr=float(lr.values[way])) for way in (one, other)
        ]
        apart = rule.steps_of_rounding(moments, m.s, m.phi, self._u, self._optimizer)
        a, b = place.values[one], place.values[other]
        return apart is not None and rule.equal_but_for(apart, a, b, place.s, place.phi, self._u)

    def _floors(self, a: np.ndarray, b: np.ndarray, place: Place) -> tuple[float, float]:
        found = rule.error(liken(a, b, place.s, self._u), a, b, place.s)
        if found.rms is None or found.worst is None:
            return math.inf, math.inf
        phi = place.phi
        parts = found.rms / phi.rms, found.worst / phi.worst, (found.factor or 0.0) / phi.factor
        return max(parts), found.rms

    def truth(self, side: str) -> str | None:
        """The way that is a side's truth: a user's casts computed in float64, where the side makes some."""
        promoted, written = (self._made.passes.get(f"{side} {way}") for way in (PROMOTED, TRUTH))
        casts = promoted and (promoted.manifest.get("promotion") or {}).get("narrowest")
        found = promoted if casts or written is None else written
        return found.label if found else None

    def _error(self, way: str, place: Place) -> float:
        truth = place.values[str(self.truth(way.split()[0]))]
        with np.errstate(invalid="ignore"):
            return rms(place.values[way] - truth) / place.s if place.s else 0.0

    def _read(self) -> Iterator[Place]:
        made, step = self._made, self._made.step
        with contextlib.ExitStack() as opened:
            open_ = opened.enter_context
            steps = {way: open_(Steps(measured)) for way, measured in made.passes.items()}
            noisy = {way: [open_(again) for again in reruns(made.passes[way])] for way in _NOISY}
            problem = made.passes[_NOISY[0]].job.spec.problem
            profile = problem.profile
            widest = max((dim for row in problem.parameter_table() for dim in row.shape), default=1)
            terms = max(steps[_NOISY[0]].tokens(step), widest)
            sums = UNIT_ROUNDOFF[profile.accumulate]
            smallest = least(self._u, sums, UNIT_ROUNDOFF[profile.master], terms)
            self._times = rule.multiple(self._u, sums, terms)
            for phase in CAUSAL_ORDER:
                if phase in SCALARS:
                    yield self._scalar(phase, steps, noisy, smallest)
                else:
                    yield from self._tensors(phase, steps, noisy, smallest)

    def _scalar(
        self, name: str, steps: dict[str, Steps], noisy: dict[str, list[Steps]], smallest: Least
    ) -> Place:
        def read(of: Steps) -> np.ndarray:
            return np.array(of.scalar(self._made.step, name))

        values = {way: read(of) for way, of in steps.items()}
        again = {way: [read(of) for of in found] for way, found in noisy.items()}
        return self._place(name, name, values, again, 0.0, smallest)

    def _tensors(
        self, phase: str, steps: dict[str, Steps], noisy: dict[str, list[Steps]], smallest: Least
    ) -> Iterator[Place]:
        step = self._made.step
        torch, jax = (steps[way] for way in _NOISY)
        found = shared(torch, jax, step, phase).both
        truth = steps[self.truth("torch") or _NOISY[0]]
        arrays = [truth.read(step, phase, named.a) for named in found]
        count = sum(array.size for array in arrays)
        group = math.sqrt(sum(rms(array) ** 2 * array.size for array in arrays) / count) if count else 0.0
        for named in found:

            def read(of: Steps, named: Named = named) -> np.ndarray:
                if of.measured.job.side == "torch":
                    return named.cut(of.read(step, phase, named.a))
                return named.cut(named.turned(of.read(step, phase, named.b)))

            values = {
                way: read(of)
                for way, of in steps.items()
                if not (phase == "act" and way.startswith(_EAGER_FORWARD))
            }
            again = {way: [read(of) for of in others] for way, others in noisy.items()}
            before = named.cut(torch.before(step, named.a)) if phase == "param" else None
            yield self._place(phase, f"{phase}, {named.title}", values, again, group, smallest, before)

    def _place(
        self,
        phase: str,
        name: str,
        values: dict[str, np.ndarray],
        again: dict[str, list[np.ndarray]],
        group: float,
        smallest: Least,
        before: np.ndarray | None = None,
    ) -> Place:
        truths = [truth for side in ("torch", "jax") if (truth := self.truth(side))]
        own = max(rms(values[way]) for way in truths or _NOISY)
        s, smallest = measured_against(own, group, phase, self._u, smallest)
        one, other = (floor(values[way], again[way], s, smallest, before) for way in _NOISY)
        return Place(name, values, s, larger((within(one, other), within(other, one))))
