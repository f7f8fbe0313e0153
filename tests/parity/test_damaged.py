"""Saved runs that are damaged, or none: told by the rule, the file and the mend, and never by a traceback."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from parity import cli, folders
from parity.bench import blocks
from spec.errors import RuleError
from tests.parity.pass_writer import small_spec, write_pass
from tests.parity.timed import run_folder

Damage = Callable[[Path], object]


def saved(folder: Path) -> Path:
    """A run of both sides for their numbers."""
    spec = small_spec()
    run_folder(folder, spec)
    for number, side in enumerate(("torch", "jax"), start=1):
        write_pass(folder / "passes" / f"{number:03d}_{side}_run", side, spec)
    return folder


def without(path: Path, field: str) -> None:
    content = json.loads(path.read_text())
    del content[field]
    path.write_text(json.dumps(content))


def in_pass(name: str) -> Callable[[Path], Path]:
    return lambda folder: folder / "passes" / "001_torch_run" / name


JOB, MANIFEST, STEPS = in_pass("job.json"), in_pass("manifest.json"), in_pass("steps.rank0.jsonl")


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda run: (run / "run.json").write_text("[]"), "run.json: no spec, backends, edits, environment"),
        (lambda run: without(run / "run.json", "environment"), "run.json: no environment"),
        (lambda run: (run / "run.json").unlink(), "hurt: no run.json"),
        (lambda run: JOB(run).write_text('{"side": "torch"}'), "job.json: no purpose"),
        (lambda run: MANIFEST(run).write_text("{}"), "manifest.json: no facts, init_sha256, probes"),
        (lambda run: STEPS(run).write_text("x\n" * 3), "steps.rank0.jsonl:1"),
        (lambda run: STEPS(run).unlink(), "steps.rank0.jsonl: no such file"),
        (lambda run: shutil.rmtree(run / "passes"), "none"),
    ],
)
def test_a_damaged_run_is_told_in_three_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Damage, found: str
) -> None:
    whole, hurt = saved(tmp_path / "whole"), saved(tmp_path / "hurt")
    assert cli.main(["compare", str(whole), str(whole)]) == 0
    capsys.readouterr()
    damage(hurt)
    assert cli.main(["compare", str(whole), str(hurt)]) == 2
    rule, numbers, mend = capsys.readouterr().err.splitlines()
    assert rule.endswith(".") and numbers.startswith("  found: ") and mend.startswith("  mend:  ")
    assert str(hurt) in numbers and found in numbers


def test_a_record_of_a_call_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / blocks.FOLDER / "damaged_call.json"
    path.parent.mkdir()
    path.write_text("{}")
    with pytest.raises(RuleError, match="damaged_call"):
        blocks.calls(tmp_path)
    with pytest.raises(RuleError, match=r"no run\.json"):
        folders.read_run(tmp_path)
