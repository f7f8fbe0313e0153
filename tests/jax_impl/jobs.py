"""Jobs for the worker's door, and what it leaves in a pass folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from spec import record
from spec.data.folder import batch_file
from spec.job import Job
from spec.run import Problem
from spec.weights import load_tensors
from tests.jax_impl.small import (
    gpt_problem,
    make_trainer,
    relative_difference,
    run_spec,
    train,
    without_key_bias,
)

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


def check_two_are_one(folder: Path, precision: str, tolerance: float) -> None:
    """A pass of two processes on the small GPT, which kept `m@0`, is one process on the whole batch.

    Not in the same slices either: two micro-batches of each of two processes are one batch.
    """
    trainer = make_trainer(gpt_problem(precision=precision))
    losses = train(trainer, 1)
    # After one step the first moment is the gradient, scaled.
    gradient = trainer.export(["m"])
    losses += train(trainer, STEPS - 1, start=1)
    assert losses_of(folder) == pytest.approx(losses, rel=tolerance)
    found = load_tensors(batch_file(folder / "tensors", 0))
    found = without_key_bias({key: found[key] for key in gradient})
    assert relative_difference(found, without_key_bias(gradient)) < 10 * tolerance


def check_ranks_are_equal(folder: Path) -> None:
    """Two ranks saw the same metrics in every step, and ended in one state."""
    digests = [(folder / f"digest.rank{rank}.json").read_text() for rank in (0, 1)]
    assert digests[0] == digests[1]
    lines = [steps_of(folder, rank) for rank in (0, 1)]
    for one, other in zip(*lines, strict=True):
        for field in ("step", "loss_bits", "grad_norm_bits", "lr_bits", "skipped"):
            assert one[field] == other[field]
