"""How a worker ends: done or error, in files and in the exit code; and how records survive a kill."""

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import record
from spec.errors import RuleError
from spec.job import Job
from spec.presets import run_spec
from spec.protocol import serve
from spec.worker.by_hand import refuse_used_folder


@pytest.fixture
def job_path(tmp_path) -> Path:
    return Job(
        side="torch", purpose="run", spec=run_spec("tiny"), mode="eager", steps=1, out=str(tmp_path / "p")
    ).write()


def test_a_job_that_ends_well(job_path) -> None:
    seen = []
    assert serve([str(job_path)], seen.append, rank=0) == 0
    assert seen[0].steps == 1 and json.loads((job_path.parent / "done.json").read_text())["seconds"] >= 0
    assert serve([str(job_path)], seen.append, rank=1) == 0


def test_a_broken_rule_is_code_2_and_a_crash_is_6(job_path) -> None:
    def refuse(job: Job) -> None:
        raise RuleError("Rule.", "numbers", "mend")

    def crash(job: Job) -> None:
        os.write(1, b"from a native library\n")
        raise ZeroDivisionError("oh")

    assert serve([str(job_path)], refuse, rank=1) == 2
    error = json.loads((job_path.parent / "error.json").read_text())
    assert error == {"code": 2, "rule": "Rule.", "numbers": "numbers", "mend": "mend", "rank": 1}
    assert serve([str(job_path)], crash, rank=0) == 6
    assert json.loads((job_path.parent / "error.json").read_text())["rank"] == 1, "the first failure stays"
    log = (job_path.parent / "log.rank0.txt").read_text()
    assert "from a native library" in log and "ZeroDivisionError: oh" in log
    assert not (job_path.parent / "done.json").exists()


def test_the_first_failure_ends_the_list(job_path) -> None:
    calls = []

    def crash(job: Job) -> None:
        calls.append(job)
        raise OSError

    assert serve([str(job_path), str(job_path)], crash, rank=0) == 6 and len(calls) == 1
    assert serve(["/nowhere/job.json"], crash, rank=0) == 2 and len(calls) == 1


@given(st.floats(width=64))
def test_bits_keep_every_float(value: float) -> None:
    back = record.from_bits(record.float_bits(value))
    assert back == value or (math.isnan(back) and math.isnan(value))
    fields = record.float_fields("loss", value)
    assert (fields["loss"] is None) == (not math.isfinite(value))


def test_a_cut_last_line_is_left_out_and_a_damaged_one_is_an_error(tmp_path) -> None:
    path = tmp_path / "steps.jsonl"
    with record.Lines(path) as lines:
        lines.write({"step": 0})
        lines.write({"step": 1})
    path.write_text(path.read_text() + '{"step": 2, "lo')
    assert [line["step"] for line in record.read_lines(path)] == [0, 1]
    path.write_text('{"step": 0}\n{"st\n{"step": 2}\n')
    with pytest.raises(RuleError, match="line"):
        list(record.read_lines(path))


def test_a_file_is_written_whole_or_not_at_all(tmp_path) -> None:
    path = tmp_path / "a" / "result.json"
    record.write_json(path, {"n": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        record.write_json(path, {"n": math.nan})
    assert json.loads(path.read_text()) == {"n": 1} and os.listdir(path.parent) == ["result.json"]
    (tmp_path / "file").write_text("")
    with pytest.raises(RuleError, match="written"):
        record.write_json(tmp_path / "file" / "x.json", {})


def test_a_folder_that_was_used_is_refused(job_path) -> None:
    refuse_used_folder(job_path.parent / "fresh")
    with pytest.raises(RuleError, match="written over"):
        refuse_used_folder(job_path.parent)
