"""Both sides step by step from the same states: every number and tensor, in the order of causes.

    rows = compare(folder_torch, folder_jax, truth_torch, truth_jax)
    first = next((row for row in rows if not row.ok), None)

A row measures one tensor of one step: the sides against each other, each against its own float64 truth, the
truths against each other, and all of it against the floor of rounding. Must not: decide about a run; that is
`verdict`'s.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from parity.judge import rule
from parity.judge.align import Measured
from parity.judge.evidence import CAUSAL_ORDER
from parity.judge.floors import Floor, Least, carrying, floor, larger, least, measured_against, raised, within
from parity.judge.likeness import Likeness, liken
from parity.judge.measures import rms
from parity.judge.oddity import tell
from parity.judge.order import Named, shared
from parity.judge.rule import Error, Finding
from parity.judge.steps import SCALARS, Steps, reruns
from spec.precision import UNIT_ROUNDOFF
from spec.run import AdamW

Read = Callable[[Steps], np.ndarray]
"""Takes one tensor or number out of a pass."""
_AGREE = ("same", "latent")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number or tensor of one step. Side `a` stands first in everything that has two values."""

    step: int
    phase: str
    tensor: str | None
    """Canonical name, with a range of rows where part of it is meant; None for one number a step."""
    finding: Finding
    reason: str
    """Why the finding is not `same`."""
    labels: tuple[str, str]
    s: float
    """What differences are measured against: RMS of the truth, or a millionth of its group's."""
    sides: Likeness | None
    """The two sides in the profile; None where one of them has no such tensor."""
    truths: Likeness | None = None
    """The two truths; None where none were given."""
    errors: tuple[Error, Error] | None = None
    """Each side against its own truth."""
    floors: tuple[Floor, Floor] | None = None
    times: float = rule.FAILS
    """Floors that a side may be off its truth."""
    truth_at_worst: tuple[float, float] | None = None
    """The truths where the sides differ most."""
    of_nothing: bool = False
    """Whether its own size is rounding, so that it is measured against its group."""

    @property
    def ok(self) -> bool:
        """Whether nothing stands against SAME."""
        return self.finding in _AGREE

    @property
    def floor(self) -> Floor | None:
        """The larger of the two floors: the noise of the pair."""
        return None if self.floors is None else larger(self.floors)

    @property
    def further(self) -> str | None:
        """The side further from its truth; None where that is not known, or both are equally far."""
        if self.errors is None or None in (one := [error.rms for error in self.errors]) or one[0] == one[1]:
            return None
        return self.labels[int(one[1] > one[0])]  # type: ignore[operator]

    @property
    def plainest(self) -> Likeness | None:
        """What shows the difference with the least noise: the truths, or the sides where there are none."""
        return self.truths or self.sides


def compare(
    folder_a: Path | str,
    folder_b: Path | str,
    truth_a: Path | str | None = None,
    truth_b: Path | str | None = None,
    casts_a: Path | str | None = None,
    casts_b: Path | str | None = None,
    *,
    labels: tuple[str, str] = ("torch", "jax"),
) -> list[Row]:
    """Compares two finished lockstep passes that started from the same states.

    Args:
      truth_a, truth_b: passes of the same sides from the same states in float64; both or neither. In the
        f64 profile they may be the passes themselves.
      casts_a, casts_b: the same in float64 with the casts of a user's code as they stand, where it has some.
        What both sides cast alike is meant, so their precision is judged by these.

    Returns:
      One row a tensor, in causal order: by step, within it by phase, within that as it is computed. A tensor
      that one side alone has is a row without numbers.
    """
    assert (truth_a is None) == (truth_b is None)
    a, b = Measured(labels[0], Path(folder_a)), Measured(labels[1], Path(folder_b))
    with contextlib.ExitStack() as opened:

        def open_all(found: Iterable[Steps]) -> list[Steps]:
            return [opened.enter_context(steps) for steps in found]

        def both(folders: tuple[Path | str | None, ...]) -> list[Steps]:
            given = zip(labels, folders, strict=True)
            return open_all(Steps(Measured(label, Path(folder))) for label, folder in given if folder)

        sides, truths, casts = (
            open_all([Steps(a), Steps(b)]),
            both((truth_a, truth_b)),
            both((casts_a, casts_b)),
        )
        noisy = [open_all(reruns(a)), open_all(reruns(b))]
        steps = sorted(set(sides[0].numbers) & set(sides[1].numbers))
        return [row for step in steps for row in _Step(step, sides, truths, casts or truths, noisy).rows()]


@dataclass
class _Step:
    """One step on both sides, with what it is measured by."""

    step: int
    sides: list[Steps]
    truths: list[Steps]
    casts: list[Steps]
    """In float64 with a user's casts in it; the truths where there are none."""
    noisy: list[list[Steps]]
    """The reruns of each side."""

    def __post_init__(self) -> None:
        problem = self.sides[0].measured.job.spec.problem
        profile = problem.profile
        widest = max((dim for row in problem.parameter_table() for dim in row.shape), default=1)
        self._u = profile.unit_roundoff
        terms = max(self.sides[0].tokens(self.step), widest)
        kept = UNIT_ROUNDOFF[profile.accumulate], UNIT_ROUNDOFF[profile.master]
        self._least = least(self._u, *kept, terms)
        self._times = rule.multiple(self._u, kept[0], terms)
        self._labels = self.sides[0].label, self.sides[1].label
        # Of the narrowest dtype that a side's own code casts to; none where truths were not made.
        casts = [truth.narrowest_cast for truth in self.truths] or [None, None]
        self._casts_to = [UNIT_ROUNDOFF[cast] if cast else 0.0 for cast in casts]
        self._optimizer = problem.optimizer
        self._moments: dict[tuple[str, str], Row] = {}

    def rows(self) -> Iterator[Row]:
        """Everything of this step in causal order."""
        present = self.sides[0].phases(self.step) | self.sides[1].phases(self.step)
        for phase in CAUSAL_ORDER:
            if phase in SCALARS:
                yield self._scalar(phase)
            elif phase in present:
                yield from self._tensors(phase)

    def _scalar(self, name: str) -> Row:
        def read(steps: Steps) -> np.ndarray:
            return np.array(steps.scalar(self.step, name))

        return self._row(name, None, read, read, group=0.0, exact=name == "lr")

    def _tensors(self, phase: str) -> Iterator[Row]:
        found = shared(self.sides[0], self.sides[1], self.step, phase)
        for label, name in found.alone:
            yield self._alone(phase, label, name)
        group = self._group(phase, found.both)
        for named in found.both:
            row = self._row(
                phase,
                named.title,
                *self._reads(phase, named),
                group,
                before=named.cut(self.sides[0].before(self.step, named.a)) if phase == "param" else None,
                rounding=partial(self._rounding, named) if phase == "param" else None,
                carried=partial(self._carried, named) if phase == "param" else None,
            )
            if phase in ("m", "v"):
                self._moments[phase, named.title] = row
            yield row

    def _reads(self, phase: str, named: Named) -> tuple[Read, Read]:
        """How either side's tensor is read, in one layout."""
        return (
            lambda steps: named.cut(steps.read(self.step, phase, named.a)),
            lambda steps: named.cut(named.turned(steps.read(self.step, phase, named.b))),
        )

    def _rounding(self, named: Named) -> np.ndarray | None:
        """How far rounding alone may part the truths of an update; None where it was made of more."""
        mean, square = (self._moments.get((phase, named.title)) for phase in ("m", "v"))
        if not self.truths or mean is None or mean.floor is None or square is None:
            return None
        moments = self._made_of(named, self.truths)
        return rule.steps_of_rounding(moments, mean.s, mean.floor, self._u, self._optimizer)

    def _carried(self, named: Named) -> list[np.ndarray] | None:
        """How far AdamW carries each side from its own float64, and their casts from each other's, where the
        true mean gradient is zero; None where it is not AdamW, or the moments are more than rounding off."""
        mean, square = (self._moments.get((phase, named.title)) for phase in ("m", "v"))
        if not self.truths or mean is None or mean.floor is None or square is None:
            return None
        if not (mean.ok and square.ok and isinstance(self._optimizer, AdamW)):
            return None
        true, (a, b), (own_a, own_b) = (
            self._made_of(named, passes) for passes in (self.truths, self.sides, self.casts)
        )
        zero = rule.zero_in_truth([made.m for made in true], mean.s, mean.floor, self._u)
        pairs = ((a, own_a), (b, own_b), (own_a, own_b))
        return [rule.carried(zero, pair, self._optimizer) for pair in pairs]

    def _made_of(self, named: Named, passes: list[Steps]) -> list[rule.Moments]:
        """What each side's update was made of in these passes."""
        m, v = (
            [read(steps) for read, steps in zip(self._reads(phase, named), passes, strict=True)]
            for phase in ("m", "v")
        )
        return [
            rule.Moments(m=m[side], v=v[side], lr=steps.scalar(self.step, "lr"))
            for side, steps in enumerate(passes)
        ]

    def _group(self, phase: str, found: list[Named]) -> float:
        """RMS over all tensors of the phase, of side a's truth."""
        source = (self.truths or self.sides)[0]
        squares = [
            (np.square(rms(array)) * array.size, array.size)
            for array in (source.read(self.step, phase, named.a) for named in found)
        ]
        count = sum(size for _, size in squares)
        return float(np.sqrt(sum(total for total, _ in squares) / count)) if count else 0.0

    def _row(
        self,
        phase: str,
        tensor: str | None,
        read_a: Read,
        read_b: Read,
        group: float,
        before: np.ndarray | None = None,
        exact: bool = False,
        rounding: Callable[[], np.ndarray | None] | None = None,
        carried: Callable[[], list[np.ndarray] | None] | None = None,
    ) -> Row:
        values = [read_a(self.sides[0]), read_b(self.sides[1])]
        true = [read_a(self.truths[0]), read_b(self.truths[1])] if self.truths else None
        meant = true if self.casts is self.truths else [read_a(self.casts[0]), read_b(self.casts[1])]
        own = max(rms(array) for array in true or values)
        s, smallest = measured_against(own, group, phase, self._u, self._least)
        sides = liken(values[0], values[1], s, self._u)
        floors = self._floors(values, (read_a, read_b), s, smallest, before)
        phi = larger(floors)
        truths = liken(true[0], true[1], s, rule.U64) if true else None
        plainest = true or values
        odd = tell(plainest[0], plainest[1], self._labels)
        finding, reason = self._finding(sides, truths, s, phi, exact, odd)
        if finding == "latent" and rounding and true:
            apart = rounding()
            if apart is not None and rule.equal_but_for(apart, true[0], true[1], s, phi, self._u):
                finding, reason = "same", ""
        if finding == "same" and meant:
            finding, reason = self._precision(values, meant, meant is not true, s, floors)
            far = carried() if carried and finding == "precision" else None
            if far is not None:
                *near, cast = map(rule.without, far, (*values, meant[0]), (*meant, meant[1]))
                finding, reason = self._precision(near, meant, meant is not true, s, floors, cast)
                if finding == "same":
                    one, other = (carrying(own, apart, s) for own, apart in zip(floors, far, strict=False))
                    floors = one, other
        return Row(
            step=self.step,
            phase=phase,
            tensor=tensor,
            finding=finding,
            reason=reason,
            labels=self._labels,
            s=s,
            sides=sides,
            truths=truths,
            errors=(self._error(values[0], true[0], s), self._error(values[1], true[1], s)) if true else None,
            floors=floors,
            times=self._times,
            of_nothing=own < s,
            truth_at_worst=(float(true[0][sides.index]), float(true[1][sides.index])) if true else None,
        )

    def _error(self, side: np.ndarray, truth: np.ndarray, s: float) -> Error:
        return rule.error(liken(side, truth, s, self._u), side, truth, s)

    def _floors(
        self,
        values: list[np.ndarray],
        reads: tuple[Read, Read],
        s: float,
        smallest: Least,
        before: np.ndarray | None,
    ) -> tuple[Floor, Floor]:
        """The floor of each side, by its own reruns."""
        one, other = (
            floor(value, (read(steps) for steps in steps_of), s, smallest, before)
            for value, read, steps_of in zip(values, reads, self.noisy, strict=True)
        )
        return within(one, other), within(other, one)

    def _finding(
        self, sides: Likeness, truths: Likeness | None, s: float, phi: Floor, exact: bool, odd: str
    ) -> tuple[Finding, str]:
        """Rules 1, 3 and 4; `odd` says where one side alone is not finite."""
        if exact:
            equal = sides.rms == 0
            return ("same", "") if equal else ("semantics", "read from one table, so it must be equal")
        if truths is None:
            finding = rule.without_truth(sides, s, phi)
            return finding, "" if finding == "same" else odd or "no truth was given"
        if rule.semantically_equal(truths, s, phi, self._u):
            return "same", ""
        far = f"in float64 {odd}"
        if truths.rms is not None and truths.largest is not None:
            far = f"in float64 rms rel {truths.rms / s:.1e}, worst element {truths.largest:.1e}"
        return ("semantics" if rule.visible(truths, s, phi) else "latent"), far

    def _precision(
        self,
        values: list[np.ndarray],
        meant: list[np.ndarray],
        casts: bool,
        s: float,
        floors: tuple[Floor, Floor],
        cast: np.ndarray | None = None,
    ) -> tuple[Finding, str]:
        """Rule 2: each side against its own float64, and their casts against each other where they have some.

        Args:
          meant: float64 with the casts of a user's code as they stand.
          cast: side a's, where it is to be another array when the two are compared.
        """
        for label, value, own, phi, roundoff in zip(
            self._labels, values, meant, floors, self._casts_to, strict=True
        ):
            beyond = rule.beyond_precision(self._error(value, own, s), raised(phi, roundoff), self._times)
            if beyond:
                return "precision", f"{label} is off its float64: {beyond}"
        if not casts:
            return "same", ""
        found = self._error(meant[0] if cast is None else cast, meant[1], s)
        beyond = rule.beyond_precision(found, larger(floors), self._times)
        return ("precision", f"the sides round otherwise: {beyond}") if beyond else ("same", "")

    def _alone(self, phase: str, label: str, name: str) -> Row:
        return Row(
            step=self.step,
            phase=phase,
            tensor=name,
            finding="unmatched",
            reason=f"{label} alone has it in this shape",
            labels=self._labels,
            s=0.0,
            sides=None,
        )
