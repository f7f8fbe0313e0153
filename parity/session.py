"""Holds a run: the turns one after another, their progress told, stopped at the first that fails.

Must not: read numbers; `judge` and `speed` do, from the folders that are left.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parity.commands import side_commands
from parity.launch import Ended, launch
from parity.plan import Plan
from parity.progress import Progress
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
        ended = _take(plan, turn, log, progress)
        held.append(Held(turn=turn, ended=ended, log=log))
        if ended.how != "done":
            break
    return held


def _take(plan: Plan, turn: Turn, log: Path, progress: Progress) -> Ended:
    processes = plan.local_processes
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
    commands = side_commands(turn.side, files, plan.spec.execution.device, processes, plan.cluster, traced)
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
        folder = Path(job.out)
        if (folder / "done.json").exists():
            continue
        curve = folder / "steps.rank0.jsonl"
        lines = curve.read_bytes().splitlines() if curve.exists() else []
        # A job that goes on from a checkpoint begins later.
        done = json.loads(lines[0])["step"] + len(lines) if lines else 0
        where = f", step {done} of {job.steps}" if done else ""
        return f"{turn.side}: {_label(job)}{where}"
    return f"{turn.side}: ending"
