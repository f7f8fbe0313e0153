"""Tries edits until nothing is left, or nothing of the catalogue helps.

An edit is a step forward where it closes something of the earliest phase that differs and opens nothing that
was closed. The one that closes most is taken, and the search goes on with what is left: so several mistakes
are peeled one by one. Every step forward is made again on held-out batches and first values, where it must
close as well. Where two mistakes meet in one tensor neither closes it: then the edit that takes most of it
away is taken for the time being, and stands if others take away the rest. Must not: start processes, or write
files.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from parity.explain.fit import Point, rounded, size, solve
from parity.explain.residuals import Key, Left
from parity.explain.settings import Setting
from parity.explain.signature import Signature, signatures
from parity.judge.evidence import CAUSAL_ORDER
from spec.edits import CATALOGUE, Edit, Kind, constants
from spec.edits.decay import NAMES as OF_DECAY
from spec.edits.weights import NAMES as OF_WEIGHTS
from spec.edits.weights import fits
from spec.errors import RuleError
from spec.own_optimizer import OwnOptimizer
from spec.params import ParamSpec

_MOST_PEELED = 4
_NARROW_FALL = 8.0
"""An edit that rounds explains a difference where it takes seven eighths of it away: two programs that round
alike are no closer than their rounding. An edit that is taken for the time being takes as much."""


@dataclass(frozen=True)
class Tried:
    """One edit, and how it did."""

    edit: Edit
    left: Left
    closed: int
    """Tensors and numbers of the earliest failing phase that it closes."""
    opened: int
    """Of any phase, that were closed without it."""


@dataclass
class Step:
    """One mistake peeled off."""

    first: Key
    before: float
    """RMS of the first difference over its scale, without the edit."""
    signatures: list[Signature]
    tried: list[Tried] = field(default_factory=list)
    confirmed: list[Tried] = field(default_factory=list)
    """Edits that hold on what was held out; several where the data do not tell them apart."""
    refuted: list[Tried] = field(default_factory=list)
    """Edits that close it here and not there."""
    for_now: bool = False
    """Whether the confirmed edit lessens the first difference and closes nothing: it stands if all is closed
    in the end."""
    after: float = 0.0
    """RMS of the first difference with the edit, on what was held out."""
    failed: dict[str, str] = field(default_factory=dict)
    """Edits whose pass broke off, and why."""


@dataclass(frozen=True)
class Found:
    """All that a search found."""

    edits: tuple[Edit, ...]
    """That together make the torch side equal to the JAX side, as far as it goes."""
    steps: list[Step]
    left: Left
    """What is left with them."""
    held_out: Left
    """What is left with them on what was held out."""


class Search:
    """A search over two settings of one run.

    Args:
      say: is told what is going on.
    """

    def __init__(self, seen: Setting, held_out: Setting, say: Callable[[str], None]) -> None:
        self._seen, self._held_out, self._say = seen, held_out, say
        self._parameters = seen.spec.problem.parameter_table()

    def run(self) -> Found:
        """Peels mistakes until nothing differs or nothing helps."""
        edits: tuple[Edit, ...] = ()
        steps: list[Step] = []
        while self._seen.left(edits).failing and len(steps) < _MOST_PEELED:
            step = self._peel(edits)
            steps.append(step)
            if not step.confirmed:
                break
            edits = (*edits, step.confirmed[0].edit)
        whole = not (self._seen.left(edits).failing or self._held_out.left(edits).failing)
        for_now = [number for number, step in enumerate(steps) if step.for_now]
        if for_now and whole:
            steps = settled(steps)
            edits = tuple(step.confirmed[0].edit for step in steps)
        elif for_now:
            edits, steps = edits[: for_now[0]], steps[: for_now[0] + 1]
            steps[-1].confirmed = []
        return Found(edits, steps, self._seen.left(edits), self._held_out.left(edits))

    def _peel(self, edits: tuple[Edit, ...]) -> Step:
        left = self._seen.left(edits)
        first = left.failing[0]
        optimizer = self._seen.spec.problem.optimizer
        assert not isinstance(optimizer, OwnOptimizer)
        beta2 = optimizer.beta2
        looks = signatures(left, self._seen.reference, self._seen.states, beta2)
        step = Step(first, left.rms[first], looks)
        self._say(f"first difference: {first} ({left.rms[first]:.1e}); {looks[0].words}")
        for name in self._order(left, looks):
            try:
                self._try(name, edits, left, step)
            except RuleError as error:
                # It does not fit this model, at one of its values; what was tried before that counts.
                step.failed[name] = error.numbers
        best = self._ranked([one for one in step.tried if self._forward(left, one)], first)
        for one in best:
            if one.closed < best[0].closed or len(one.left.failing) > len(best[0].left.failing):
                break
            if self._holds(edits, one):
                step.confirmed.append(one)
                after = self._held_out.left((*edits, one.edit))
                step.after = max(step.after, after.rms.get(first, 0.0))
            else:
                step.refuted.append(one)
        if not best and (most := self._most(edits, left, step.tried)):
            step.confirmed, step.for_now = [most], True
            step.after = self._held_out.left((*edits, most.edit)).rms.get(first, 0.0)
        return step

    def _most(self, edits: tuple[Edit, ...], left: Left, tried: list[Tried]) -> Tried | None:
        """The edit that takes most of the earliest phase away, here and on what was held out; None where none
        takes seven eighths. A constant is then the shortest that does about as well as the best, since what
        is left of another mistake bends the solution."""
        phase = left.phase or ""
        sizes = [(size(one.left, phase), one) for one in tried if not one.opened]
        least = min((far for far, _ in sizes), default=0.0)
        near = [one for far, one in sizes if far <= 2 * least and far * _NARROW_FALL < size(left, phase)]
        before = size(self._held_out.left(edits), phase)
        for one in sorted(near, key=lambda one: len(f"{one.edit.value:.12g}")):
            if size(self._held_out.left((*edits, one.edit)), phase) * _NARROW_FALL < before:
                return one
        return None

    def _ranked(self, tried: list[Tried], first: Key) -> list[Tried]:
        """Best first, and the best value of each kind alone: the shortest where several do equally well."""
        ordered = sorted(
            tried,
            key=lambda one: (
                -one.closed,
                len(one.left.failing),
                0.0 if not one.left.failing else size(one.left, first.phase),
                len(f"{one.edit.value:.12g}"),
            ),
        )
        kinds: dict[tuple[str, str], Tried] = {}
        for one in ordered:
            kinds.setdefault((one.edit.name, one.edit.target), one)
        return list(kinds.values())

    def _order(self, left: Left, looks: list[Signature]) -> list[str]:
        """Kinds that can show first where the first difference is, those of its signatures first."""
        assert left.phase is not None
        names = {look.name for look in looks}
        place = CAUSAL_ORDER.index(left.phase)
        fitting = []
        for name, kind in CATALOGUE.items():
            shows = CAUSAL_ORDER.index(kind.shows)
            # What shows in a phase that was compared and is equal is not to blame.
            hidden = kind.shows not in left.phases
            if kind.reach not in ("refused", "compiler") and (
                kind.shows == left.phase or (shows < place and hidden)
            ):
                fitting.append(name)
        return sorted(fitting, key=lambda name: CATALOGUE[name].signature not in names)

    def _try(self, name: str, edits: tuple[Edit, ...], left: Left, step: Step) -> None:
        """Every value of a kind, the unknown one solved for."""
        kind = CATALOGUE[name]
        assert left.phase is not None

        def attempt(value: float, target: str = "") -> Left:
            return self._seen.left((*edits, Edit(name=name, value=value, target=target)))

        points = []
        for edit in _candidates(name, kind, self._parameters, left):
            after = attempt(edit.value, edit.target)
            points.append(Point(edit.value, after))
            step.tried.append(_judged(edit, left, after))
            if not kind.targeted and self._untouched(edits, edit, left, after):
                # It meets nothing in this model, whatever its value.
                return
        if kind.scale and len(points) > 1:
            tried = solve(points, left.phase, kind.scale, min(kind.values) >= 0, attempt)
            step.tried += [
                _judged(Edit(name=name, value=p.value), left, p.left) for p in tried[len(points) :]
            ]
            best = min(tried, key=lambda point: size(point.left, left.phase or ""))
            short = rounded(best.value)
            if short != best.value and size(best.left, left.phase) < size(left, left.phase):
                edit = Edit(name=name, value=short)
                step.tried.append(_judged(edit, left, attempt(short)))

    def _untouched(self, edits: tuple[Edit, ...], edit: Edit, left: Left, after: Left) -> bool:
        """Whether an edit of a model met no call there. A preset's own constants are no calls."""
        if CATALOGUE[edit.name].reach != "model" or self._is_constant(edit.name):
            return False
        return edit.name not in self._seen.seen.get((*edits, edit), {}) and after.rms == left.rms

    def _is_constant(self, name: str) -> bool:
        problem = self._seen.spec.problem
        return problem.workload != "pair" and hasattr(constants(problem), name)

    def _forward(self, left: Left, one: Tried) -> bool:
        if CATALOGUE[one.edit.name].narrow:
            phase = left.phase or ""
            return size(one.left, phase) * _NARROW_FALL < size(left, phase)
        return one.closed > 0 and one.opened == 0

    def _holds(self, edits: tuple[Edit, ...], one: Tried) -> bool:
        """Whether it is a step forward on what was held out too."""
        before = self._held_out.left(edits)
        if not before.failing:
            return False
        return self._forward(before, _judged(one.edit, before, self._held_out.left((*edits, one.edit))))


def settled(steps: list[Step]) -> list[Step]:
    """The steps of a search that closed everything, each constant once: a value that was taken for the time
    being gives way to the one that was found when nothing else was left."""
    kept: list[Step] = []
    for step in steps:
        edit = step.confirmed[0].edit
        earlier = [one for one in kept if one.for_now and _about(one.confirmed[0].edit) == _about(edit)]
        if earlier:
            earlier[0].confirmed, earlier[0].after = step.confirmed, step.after
        else:
            kept.append(step)
    return kept


def _about(edit: Edit) -> tuple[str, str]:
    return edit.name, edit.target


def _candidates(name: str, kind: Kind, parameters: tuple[ParamSpec, ...], left: Left) -> Iterator[Edit]:
    """The edits of a kind that are tried before anything is solved for."""
    for value in kind.values:
        for row in parameters if name in OF_WEIGHTS else ():
            edit = Edit(name=name, value=value, target=row.name if kind.targeted else "")
            if fits(edit, row.name, row.shape):
                yield edit
                if not kind.targeted:
                    break
        if name in OF_DECAY and kind.targeted:
            differing = dict.fromkeys(key.tensor for key in left.failing if key.phase == kind.shows)
            known = {row.name for row in parameters}
            yield from (Edit(name=name, value=value, target=one) for one in differing if one in known)
        elif name not in OF_WEIGHTS:
            yield Edit(name=name, value=value)


def _judged(edit: Edit, before: Left, after: Left) -> Tried:
    open_now, open_before = set(after.failing), set(before.failing)
    gone = open_before - open_now
    closed = sum(key.phase == before.phase for key in gone)
    return Tried(edit, after, closed, len(open_now - open_before))
