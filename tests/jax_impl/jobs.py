"""Jobs for the worker's door, and what it leaves in a pass folder."""

import json
from pathlib import Path
from typing import Any

from spec import record
from spec.job import Job
from spec.run import Problem
from tests.jax_impl.small import gpt_problem, run_spec

STEPS = 4


def job(
    out: Path, purpose: str = "run", problem: Problem | None = None, world_size: int = 1, **changes: Any
) -> Job:
    """A job of the JAX side on the small GPT or the problem given."""
    settings: dict[str, Any] = {
        "side": "jax",
        "purpose": purpose,
        "spec": run_spec(problem or gpt_problem(), world_size),
        "mode": "jit",
        "steps": STEPS,
        "out": str(out),
    }
    return Job(**settings | changes)


def steps_of(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    """The records of one rank's steps."""
    return list(record.read_lines(folder / f"steps.rank{rank}.jsonl"))


def losses_of(folder: Path) -> list[float]:
    """The losses, to the bit."""
    return [record.from_bits(line["loss_bits"]) for line in steps_of(folder)]


def manifest_of(folder: Path) -> dict[str, Any]:
    """What the side said of itself."""
    return json.loads((folder / "manifest.json").read_text())


def error_of(folder: Path) -> dict[str, Any]:
    """How a job failed."""
    return json.loads((folder / "error.json").read_text())
