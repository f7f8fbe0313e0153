"""Killed at any moment, a run loses nothing that was whole: one kill at every call, and kills at random."""

from collections.abc import Callable
from pathlib import Path

PROGRAM = str(Path(__file__).with_name("killed.py"))


def test_killed_at_every_call_that_changes_the_disk(
    run_python: Callable[..., object], tmp_path: Path
) -> None:
    run_python(PROGRAM, "every-call", str(tmp_path))


def test_killed_at_random_moments(run_python: Callable[..., object], tmp_path: Path) -> None:
    run_python(PROGRAM, "random", str(tmp_path))
