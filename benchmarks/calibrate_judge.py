"""How near measured runs come to the bounds of the decision rule: what its constants are frozen on.

    parity run tiny --devices 1 --seed 101 --judge measured --no-time
    python benchmarks/calibrate_judge.py runs/0001_* ...

Prints one JSON line a run: the largest errors of a side in its floors, as an RMS, at single elements and as a
mean ratio, the bound that they have, and the largest difference of two truths, apart for tensors whose truth
is zero. Must not: decide; the rule does.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from parity.judge.lockstep import Row, compare
from spec.job import Job, read_job

_MEASURES = ("rms", "worst", "factor")


def main(folders: Iterable[str]) -> None:
    """Prints a line for each run folder."""
    for folder in map(Path, folders):
        jobs = [read_job(path) for path in sorted(folder.glob("passes/*_lockstep*/job.json"))]
        profile = {job.side: job for job in jobs if not job.promote and job.perturb is not None}
        truths = {job.side: job for job in jobs if job.promote}
        rows = compare(*(found[side].out for found in (profile, truths) for side in ("torch", "jax")))
        print(json.dumps(_line(folder, profile["torch"], rows)))


def _line(folder: Path, job: Job, rows: list[Row]) -> dict[str, object]:
    problem = job.spec.problem
    measured = [row for row in rows if row.truths and row.truths.rms is not None and row.s]
    nothing = [row for row in measured if row.tensor and row.tensor.endswith("]")]
    others = [row for row in measured if row not in nothing]
    largest = {name: round(max(_in_floors(row, name) for row in rows), 2) for name in _MEASURES}
    return {
        "run": folder.name,
        "preset": job.spec.name,
        "precision": problem.precision,
        "seed": problem.seed_weights,
        "rows": len(rows),
        "not_same": sum(row.finding != "same" for row in rows),
        "largest_in_floors": largest,
        "bound_in_floors": round(max(row.times for row in rows), 1),
        "truths_rms_rel": _largest_truth(others),
        "truths_rms_rel_where_zero": _largest_truth(nothing),
    }


def _in_floors(row: Row, name: str) -> float:
    """The larger of both sides' errors in their floors."""
    found = zip(row.errors or (), row.floors or (), strict=False)
    return max(((getattr(error, name) or 0.0) / getattr(floor, name) for error, floor in found), default=0.0)


def _largest_truth(rows: list[Row]) -> float | None:
    found = [row.truths.rms / row.s for row in rows if row.truths and row.truths.rms is not None]
    return max(found, default=None)


if __name__ == "__main__":
    main(sys.argv[1:])
