"""Who runs when: the jobs of each launch, in the order A, B, B, A where speed is measured.

A machine that warms up or slows down during a run then slows both sides alike. Must not: start anything.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parity.handoff import Stretch
from parity.passes import Passes
from parity.plan import Plan
from spec.job import Job, Timing


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One launch: a side and its jobs in order."""

    side: str
    jobs: tuple[Job, ...]

    @property
    def processes(self) -> int:
        """Over all hosts."""
        return self.jobs[0].spec.execution.processes(self.side)


def judged(plan: Plan, folder: Path, timing: Timing | None) -> list[Turn]:
    """A run: each side once for its numbers, each twice for its speed where `timing` is given, and then the
    stretches of a hand-off, which share launches where their order allows it."""
    sides = plan.backends
    timed: list[str | Stretch] = ["time"] if timing else []
    if len(sides) == 1 or not timing:
        order = [(side, ["run", *timed]) for side in sides]
    else:
        order = [(sides[0], ["run", *timed]), (sides[1], ["run", *timed, *timed]), (sides[0], [*timed])]
    _add_stretches(order, plan.handoff)
    passes = Passes(plan, folder, timing)

    def job(side: str, what: str | Stretch) -> Job:
        if isinstance(what, Stretch):
            return passes.stretch(what)
        return passes.run(side) if what == "run" else passes.time(side)

    return [Turn(side=side, jobs=tuple(job(side, what) for what in contents)) for side, contents in order]


def _add_stretches(order: list[tuple[str, list[str | Stretch]]], stretches: Sequence[Stretch]) -> None:
    """Puts each stretch at the end of its side's next launch, which is a new one where there is none."""
    launch = 0
    for stretch in stretches:
        while launch < len(order) and order[launch][0] != stretch.side:
            launch += 1
        if launch == len(order):
            order.append((stretch.side, []))
        order[launch][1].append(stretch)


def timed(
    plan: Plan, folder: Path, contenders: Sequence[tuple[str, str]], timing: Timing, done: int = 0
) -> list[Turn]:
    """A benchmark: every contender (side, mode) in order, then in reverse; neighbours share a launch.

    Args:
      done: the number of the last pass that the run folder already has.
    """
    passes = Passes(plan, folder, timing, done)
    order = (*contenders, *reversed(contenders))
    return joined(Turn(side=side, jobs=(passes.time(side, mode),)) for side, mode in order)


def joined(turns: Iterable[Turn]) -> list[Turn]:
    """The same jobs in the same order, neighbours of one side in one launch where they run in as many
    processes."""
    found: list[Turn] = []
    for turn in turns:
        if found and (found[-1].side, found[-1].processes) == (turn.side, turn.processes):
            found[-1] = Turn(side=turn.side, jobs=(*found[-1].jobs, *turn.jobs))
        else:
            found.append(turn)
    return found
