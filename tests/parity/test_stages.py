"""The stage of a job, off the files that it has written so far."""

import dataclasses
from pathlib import Path

from parity.stages import stage
from spec import record
from spec.job import Job, Timing
from tests.parity.timed import spec_of


def test_a_time_job_goes_through_its_stages(tmp_path: Path) -> None:
    asked = Job(
        side="torch",
        purpose="time",
        spec=spec_of(),
        mode="eager",
        steps=10,
        out=str(tmp_path),
        timing=Timing(windows=2),
    )
    assert stage(asked) == "starting"
    (tmp_path / "log.rank0.txt").write_text("")
    assert stage(asked) == "set-up"
    record.write_json(tmp_path / "manifest.json", {})
    assert stage(asked) == "compile, capture, warm-up"
    with record.Lines(tmp_path / "windows.jsonl") as lines:
        for kind, seen in (
            ("start", "window 1 of 2"),
            ("window", "window 2 of 2"),
            ("window", "single calls"),
            ("dispatch", "single calls"),
            ("launch", "launches alone"),
        ):
            lines.write({"kind": kind})
            assert stage(asked) == seen


def test_a_run_job_tells_its_step_from_where_it_began(tmp_path: Path) -> None:
    asked = Job(side="jax", purpose="run", spec=spec_of(), mode="jit", steps=10, out=str(tmp_path))
    (tmp_path / "log.rank0.txt").write_text("")
    record.write_json(tmp_path / "manifest.json", {})
    assert stage(asked) == "compile and first step"
    with record.Lines(tmp_path / "steps.rank0.jsonl") as lines:
        for step in (4, 5):
            lines.write({"step": step})
    assert stage(asked) == "step 6 of 10"
    assert stage(dataclasses.replace(asked, steps=12)) == "step 6 of 12"
