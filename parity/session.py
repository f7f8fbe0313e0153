"""Holds a run: the turns one after another, their progress told, stopped at the first that fails.

Must not: read numbers; `judge` and `speed` do, from the folders that are left.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from parity.commands import side_commands
from parity.launch import Ended, launch
from parity.plan import Plan
from parity.progress import Progress
from parity.speed.conditions import SUFFIX, Watch
from parity.stages import stage
from parity.turns import Turn
from spec.job import Job


@dataclass(frozen=True, kw_only=True)
class Held:
    """One turn and how it ended."""

    turn: Turn
    ended: Ended
    log: Path


def hold(plan: Plan, turns: Sequence[Turn], folder: Path, progress: Progress, done: int = 0) -> list[Held]:
    """Runs the turns in order; the last one in the answer may have failed.

    Args:
      done: launches that the run folder already has.
    """
    held: list[Held] = []
    for number, turn in enumerate(turns, start=done + 1):
        log = folder / "launches" / f"{number:03d}_{turn.side}.log"
        try:
            with _watched(plan, turn, log, first=not held):
                ended = _take(plan, turn, log, progress, folder / "tuned")
        except KeyboardInterrupt:
            # Between two launches; one that runs ends itself.
            ended = Ended(how="interrupted", seconds=0.0)
        held.append(Held(turn=turn, ended=ended, log=log))
        if ended.how != "done":
            break
    return held


def _watched(plan: Plan, turn: Turn, log: Path, first: bool) -> AbstractContextManager[object]:
    """What is looked at beside a launch that is timed."""
    if not any(job.purpose == "time" for job in turn.jobs):
        return nullcontext()
    gpus = plan.local_processes if plan.spec.execution.device == "cuda" else 0
    return Watch(log.with_name(log.stem + SUFFIX), gpus, first)


def _take(plan: Plan, turn: Turn, log: Path, progress: Progress, tuned: Path) -> Ended:
    processes = turn.processes // plan.cluster.nodes
    what = ", ".join(
        label if count == 1 else f"{label} x {count}"
        for label, count in Counter(_label(job) for job in turn.jobs).items()
    )
    progress.say(
        f"{turn.side}: {what} on {processes} process{'es' if processes > 1 else ''} "
        f"({plan.spec.execution.device})"
    )
    files = [job.write() for job in turn.jobs]
    traced = any(job.purpose == "trace" for job in turn.jobs)
    commands = side_commands(
        turn.side,
        files,
        plan.spec.execution.device,
        processes,
        plan.cluster,
        traced,
        devices_each=plan.local_processes // processes,
        tuned=tuned,
    )
    ended = launch(
        commands,
        [file.parent for file in files],
        log,
        plan.timeout_s,
        on_look=lambda: progress.move(_state(turn)),
        has_rank_0=plan.cluster.node_rank == 0,
    )
    progress.say(f"{turn.side}: {ended.how} after {ended.seconds:.1f} s")
    return ended


def _label(job: Job) -> str:
    return job.purpose if job.mode == job.spec.execution.mode(job.side) else f"{job.purpose} {job.mode}"


def _state(turn: Turn) -> str:
    """`torch: run, step 23 of 50` for the job that is under way."""
    for job in turn.jobs:
        if not (Path(job.out) / "done.json").exists():
            return f"{turn.side}: {_label(job)}, {stage(job)}"
    return f"{turn.side}: ending"
