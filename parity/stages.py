"""Which stage a job is in, read off the files that it has written so far.

Must not: wait for anything, or fail on a file that is being written.
"""

import json
from pathlib import Path

from spec.job import Job


def stage(job: Job) -> str:
    """`starting`, `set-up`, `compile and first step`, `step 23 of 50`, `window 3 of 10` ..."""
    folder = Path(job.out)
    if not list(folder.glob("log.rank*.txt")):
        return "starting"
    if not (folder / "manifest.json").exists():
        return "set-up"
    if job.purpose == "time":
        return _timing(job, folder / "windows.jsonl")
    curve = folder / "steps.rank0.jsonl"
    lines = curve.read_bytes().splitlines() if curve.exists() else []
    if not lines:
        return "compile and first step"
    # A job that goes on from a checkpoint begins later.
    return f"step {json.loads(lines[0])['step'] + len(lines)} of {job.steps}"


def _timing(job: Job, path: Path) -> str:
    """What a `time` job does: its samples are written as they come."""
    if not path.exists():
        return "compile, capture, warm-up"
    text = path.read_text()
    windows = text.count('"window"')
    if windows < job.timing.windows:
        return f"window {windows + 1} of {job.timing.windows}"
    return "launches alone" if '"launch"' in text else "single calls"
