"""What each pass is asked: a job with its folder, what it writes down, which checkpoints it takes and makes.

Must not: decide who runs when; `turns.py` does.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.handoff import Stretch
from parity.plan import Plan
from spec.checkpoint.find import FOLDER, step_folder
from spec.jit import jit_options
from spec.job import Job, Timing
from spec.own_optimizer import OwnOptimizer
from spec.run import RunSpec

_FULL_OBSERVATION_PARAMETERS = 30_000_000
"""Larger models write the first gradients and the last parameters only: a copy of every state would be
gigabytes."""


class Passes:
    """Makes jobs and numbers their pass folders in the order of running.

    Args:
      done: the number of the last pass that the run folder already has.
    """

    def __init__(self, plan: Plan, folder: Path, timing: Timing | None = None, done: int = 0) -> None:
        self._plan, self._folder, self._timing, self._count = plan, folder, timing or Timing(), done
        self._handed_on: Job | None = None

    def run(self, side: str) -> Job:
        """The whole training of a side, for its numbers."""
        plan = self._plan
        checkpoint = plan.start.checkpoints.get(side)
        return self._job(
            side,
            "run",
            observe=observed(plan),
            resume=None if checkpoint is None else str(checkpoint),
            save_every=plan.save_every,
            keep=plan.keep,
        )

    def time(self, side: str, mode: str | None = None) -> Job:
        """A measurement of a side's step, this project's own where no mode is given."""
        return self._job(side, "time", mode)

    def trace(self, side: str, mode: str | None = None) -> Job:
        """The same steps as `time`, some of them traced."""
        return self._job(side, "trace", mode)

    def stretch(self, stretch: Stretch) -> Job:
        """A part of the run that changes sides, from the checkpoint of the part asked for before."""
        first, last = _first_step(self._plan, stretch.first), _last_state(self._plan)
        before, is_last = self._handed_on, stretch.stop == self._plan.spec.problem.steps
        job = self._job(
            stretch.side,
            "handoff",
            steps=stretch.stop,
            observe=(first if before is None else ()) + (last if is_last else ()),
            resume=before and str(Path(before.out) / FOLDER / step_folder(stretch.first)),
            save_every=None if is_last else stretch.stop,
        )
        self._handed_on = job
        return job

    def _job(self, side: str, purpose: str, mode: str | None = None, **changes: Any) -> Job:
        self._count += 1
        plan = self._plan
        label = purpose if mode is None else f"{purpose}_{mode.replace(':', '-')}"
        settings: dict[str, Any] = {
            "side": side,
            "purpose": purpose,
            "spec": _in_processes(plan.spec, side, mode or plan.spec.execution.mode(side)),
            "mode": mode or plan.spec.execution.mode(side),
            "steps": plan.spec.problem.steps,
            "out": str(self._folder / "passes" / f"{self._count:03d}_{side}_{label}"),
            "edits": plan.edits.get(side, ()),
            "must_act": True,
            "timing": self._timing,
        }
        return Job(**settings | changes)


def _in_processes(spec: RunSpec, side: str, mode: str) -> RunSpec:
    """The run in as many processes as the mode asks for."""
    if side != "jax":
        return spec
    one_process = jit_options(mode).one_process
    return replace(spec, execution=replace(spec.execution, jax_one_process=one_process))


def observed(plan: Plan) -> tuple[str, ...]:
    """What a run job writes down: every phase of the first step and the last state.

    Sides that go on from checkpoints of their own have parted by rounding before, which tolerances of the
    last state allow for and those of a first step do not.
    """
    first = _first_step(plan, plan.start.step) if plan.start.from_equal_bits else ()
    return first + _last_state(plan)


def observed_phases(plan: Plan) -> tuple[str, ...]:
    """The phases of one step that can be compared, but for activations."""
    return ("grad", "clipped", "m", "v", "param", *(("buffer",) if plan.pair else ()))


def _first_step(plan: Plan, step: int) -> tuple[str, ...]:
    """What is written down of the first step."""
    if _own_optimizer(plan):
        # Its moments are its own; how far parameters moved is measured, since no table of rates tells it.
        return ("param@init", *(f"{phase}@{step}" for phase in ("grad", "clipped", "param")))
    phases = ("grad",) if _is_large(plan) else ("grad", "clipped", "m", "v", "param")
    return tuple(f"{phase}@{step}" for phase in phases)


def _last_state(plan: Plan) -> tuple[str, ...]:
    """What is written down of the last state."""
    # The models of this project have no running statistics.
    statistics = ("buffer@last", "eval@last") if plan.pair else ()
    if _own_optimizer(plan) or _is_large(plan):
        return ("param@last", *statistics)
    return ("m@last", "v@last", "param@last", *statistics)


def _own_optimizer(plan: Plan) -> bool:
    return isinstance(plan.spec.problem.optimizer, OwnOptimizer)


def _is_large(plan: Plan) -> bool:
    return plan.spec.problem.num_params > _FULL_OBSERVATION_PARAMETERS
