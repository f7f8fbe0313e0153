"""The traced passes of a run: which one belongs to which timed passes, what it says of them, its drawing.

Must not: count; `tracing` does.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.report.traced import TraceRecord
from parity.speed import nodes, perfetto, provenance, tracing
from parity.speed.spans import Parted
from spec import trace
from spec.errors import RuleError
from spec.job import Job, read_job


def find(timed: Sequence[Path]) -> Path | None:
    """The finished pass that traced the step of timed ones, in the call that timed them; None where there
    is none."""
    step, last = _step(read_job(timed[0] / "job.json")), max(folder.name for folder in timed)
    # Names begin with a number. A call traces behind what it timed, so what comes later is of a later call.
    for folder in sorted(one for one in timed[0].parent.iterdir() if one.name > last):
        try:
            job = read_job(folder / "job.json")
        except RuleError:
            # A pass that was broken off, or one that its side refused, has nothing to do with these.
            continue
        if job.purpose not in ("time", "trace") or _step(job) != step:
            continue
        if job.purpose == "time":
            return None
        if (folder / "done.json").exists() and (folder / trace.FILE).exists():
            return folder
    return None


def _step(job: Job) -> Job:
    """What of a job decides which step it makes, and how often."""
    return replace(job, purpose="time", out="")


def read(folder: Path, timed: Sequence[Path]) -> tuple[dict[str, Any], dict[str, str]]:
    """The figures of a traced pass by name, with its record as `trace`, and why some are null.

    Args:
      timed: the timed passes of the same step; what ran another program tells nothing of them.
    """
    found = trace.read(folder)
    traced = tracing.figures(found)
    proof = provenance.compare(found.program, [trace.program_of(one) for one in timed])
    manifest = json.loads((folder / "manifest.json").read_text())
    counts, no_counts = nodes.match(manifest["side"], manifest["capture"], Parted(found).settled)
    told = {"nodes": no_counts, "same_end_state": proof.note}
    entry = TraceRecord(
        folder=folder.name,
        instrument=found.instrument,
        reason=found.reason,
        device=found.device_name,
        steps=traced.steps,
        step_ms=traced.step_ms,
        same_program=proof.same_program,
        same_end_state=proof.same_end_state,
        nodes=counts,
        reasons={name: reason for name, reason in told.items() if reason},
    )
    if proof.refusal:
        refused = dict.fromkeys(tracing.FIGURES, proof.refusal)
        return {**dict.fromkeys(tracing.FIGURES), "trace": entry}, refused
    return {**{name: getattr(traced, name) for name in tracing.FIGURES}, "trace": entry}, traced.reasons


def draw(jobs: Iterable[Job]) -> None:
    """Writes the drawing of every finished trace into its pass folder."""
    for job in jobs:
        perfetto.write(trace.read(Path(job.out)), Path(job.out), f"{job.side} {job.mode}")
