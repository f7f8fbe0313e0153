"""Who runs when: the jobs of each launch, in the order A, B, B, A where speed is measured.

A machine that warms up or slows down during a run then slows both sides alike. Must not: start anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parity.plan import Plan
from spec.job import Job, Timing

_FULL_OBSERVATION_PARAMETERS = 30_000_000
"""Larger models write the first gradients and the last parameters only: a copy of every state would be
gigabytes."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One launch: a side and its jobs in order."""

    side: str
    jobs: tuple[Job, ...]


class _Passes:
    """Makes jobs and numbers their pass folders in the order of running."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan, self._folder, self._count = plan, folder, 0

    def job(self, side: str, purpose: str, mode: str | None = None, timing: Timing | None = None) -> Job:
        self._count += 1
        plan = self._plan
        label = purpose if mode is None else f"{purpose}_{mode.replace(':', '-')}"
        mode = mode or plan.spec.execution.mode(side)
        return Job(
            side=side,
            purpose=purpose,
            spec=plan.spec,
            mode=mode,
            steps=plan.spec.problem.steps,
            out=str(self._folder / "passes" / f"{self._count:03d}_{side}_{label}"),
            observe=observed(plan) if purpose == "run" else (),
            edits=plan.edits.get(side, ()),
            timing=timing or Timing(),
        )


def observed(plan: Plan) -> tuple[str, ...]:
    """What a run job writes down: every phase of the first step and the last state."""
    size = sum(parameter.size for parameter in plan.spec.problem.parameter_table())
    # The models of this project have no running statistics.
    statistics = ("buffer@last",) if plan.pair else ()
    if size > _FULL_OBSERVATION_PARAMETERS:
        return ("grad@0", "param@last", *statistics)
    return ("grad@0", "clipped@0", "m@0", "v@0", "param@0", "m@last", "v@last", "param@last", *statistics)


def observed_phases(plan: Plan) -> tuple[str, ...]:
    """The phases of one step that can be compared, but for activations."""
    return ("grad", "clipped", "m", "v", "param", *(("buffer",) if plan.pair else ()))


def judged(plan: Plan, folder: Path, timing: Timing | None) -> list[Turn]:
    """A run: each side once for its numbers, and each twice for its speed where `timing` is given."""
    passes, sides = _Passes(plan, folder), plan.backends
    timed = ["time"] if timing else []
    if len(sides) == 1 or not timing:
        order = [(side, ["run", *timed]) for side in sides]
    else:
        order = [(sides[0], ["run", "time"]), (sides[1], ["run", "time", "time"]), (sides[0], ["time"])]
    return [
        Turn(side=side, jobs=tuple(passes.job(side, purpose, timing=timing) for purpose in purposes))
        for side, purposes in order
    ]


def timed(plan: Plan, folder: Path, contenders: Sequence[tuple[str, str]], timing: Timing) -> list[Turn]:
    """A benchmark: every contender (side, mode) in order, then in reverse; neighbours share a launch."""
    passes, turns = _Passes(plan, folder), []
    for side, mode in (*contenders, *reversed(contenders)):
        job = passes.job(side, "time", mode, timing)
        if turns and turns[-1].side == side:
            turns[-1] = Turn(side=side, jobs=(*turns[-1].jobs, job))
        else:
            turns.append(Turn(side=side, jobs=(job,)))
    return turns
