"""Modes in turns: each variant is what was asked for, and a program entered twice computes one thing."""

import json
import subprocess
import sys
from pathlib import Path

from tests.jax_impl.processes import ROOT


def turns(out: Path, *variants: str) -> subprocess.CompletedProcess[str]:
    """The benchmark on a CPU."""
    argv = [sys.executable, "-m", "benchmarks.jax_turns", "toy-mlp", *variants, "--device", "cpu"]
    argv += ["--windows", "3", "--steps", "2", "--out", str(out)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_variants_take_turns_and_are_what_was_asked_for(tmp_path) -> None:
    done = turns(tmp_path / "turns.jsonl", "jit", "jit", "jit:apart@xla_cpu_enable_fast_math=False")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "turns.jsonl").read_text().splitlines()]
    one, again, apart = rows
    assert one["variant"] == again["variant"] == "jit"
    assert one["loss_10"] == again["loss_10"]
    assert one["proven"]["program_sha256"] == again["proven"]["program_sha256"]
    assert apart["proven"]["program_sha256"] != one["proven"]["program_sha256"]
    told = {row["variant"]: row["options"].get("xla_cpu_enable_fast_math") for row in rows}
    assert told == {"jit": None, "jit:apart@xla_cpu_enable_fast_math=False": "False"}
    assert all(len(row["window_ms"]) == 3 for row in rows)
    began = sorted((moment, number) for number, row in enumerate(rows) for moment in row["window_began"])
    order = [number for _, number in began]
    assert all(sorted(order[turn : turn + 3]) == [0, 1, 2] for turn in (0, 3, 6))


def test_several_steps_a_launch_are_refused(tmp_path) -> None:
    done = turns(tmp_path / "turns.jsonl", "jit:k2")
    assert done.returncode != 0
    assert "A window has one step a launch." in done.stderr
    assert not (tmp_path / "turns.jsonl").exists()
