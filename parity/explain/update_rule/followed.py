"""Both sides followed step by step in float64, with optimizers of their own: as they ran, and held out.

A run goes one step further than the user's, where schedules end. First gradients are made once more with a
user's casts in float64, to say whether both models are one. Must not: judge.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from parity.explain.settings import Told, as_it_was, shuffled
from parity.explain.update_rule.observed import PHASES, Observed
from parity.explain.worker import Worker
from parity.judge.align import Measured
from parity.judge.measures import rms
from parity.pairs import read
from spec.data.folder import batch_file
from spec.job import Job
from spec.run import SIDES, DataSpec, RunSpec
from spec.weights import load_tensors

_LEAST_STEPS = 5
"""Fewer do not tell two forms apart."""


@dataclass(frozen=True)
class Followed:
    """What both sides did, by the name of the problem, `seen` or `held_out`, and by side."""

    steps: dict[str, dict[str, Observed]]
    gradient_rel: dict[str, float]
    """RMS of the difference of both sides' first gradients over theirs, at the worst tensor."""


def follow(told: Told, workers: dict[str, Worker], out: Path) -> Followed:
    """Makes the runs; two processes, eight jobs."""
    steps: dict[str, dict[str, Observed]] = {}
    gradient_rel = {}
    for name, spec in _specs(told, out).items():
        steps[name], first = {}, {}
        for side in SIDES:
            job = _job(told, spec, side, out / name / side)
            steps[name][side] = Observed.read(workers[side].do(job))
            # Casts in the optimizer are looked for; those in the model would hide that it is the same.
            proof = replace(job, steps=1, out=f"{job.out}_first", observe=("grad@0",), promote=True)
            files = Measured(side, workers[side].do(proof)).tensor_files()
            first[side] = load_tensors(files[0])
            shutil.rmtree(Path(job.out) / "tensors", ignore_errors=True)
        gradient_rel[name] = _worst(first["torch"], first["jax"])
    return Followed(steps, gradient_rel)


def _specs(told: Told, out: Path) -> dict[str, RunSpec]:
    """The run's problem, and one with the batches that come after and first values of the same spread."""
    assert told.pair is not None and told.spec.pair is not None
    steps = max(_LEAST_STEPS, min(told.followed_steps, told.spec.problem.steps + 1))
    batches, later = out / "batches", out / "later_batches"
    read.write_batches(told.pair, batches, 2 * steps)
    later.mkdir(parents=True)
    for step in range(steps):
        batch_file(batches, steps + step).rename(batch_file(later, step))
    initial = out / "initial.safetensors"
    shuffled(Path(str(told.spec.pair.initial)), initial)
    spec = as_it_was(told)

    def over(folder: Path) -> RunSpec:
        data = DataSpec(kind="folder", path=str(folder))
        return replace(spec, problem=replace(spec.problem, steps=steps, data=data))

    held = over(later)
    held = replace(held, pair=replace(told.spec.pair, initial=str(initial)))
    return {"seen": over(batches), "held_out": held}


def _job(told: Told, spec: RunSpec, side: str, out: Path) -> Job:
    steps = spec.problem.steps
    return Job(
        side=side,
        purpose="run",
        spec=spec,
        mode="eager" if side == "torch" else "jit",
        steps=steps,
        out=str(out),
        edits=told.edits[side],
        observe=("param@init", *(f"{phase}@{step}" for step in range(steps) for phase in PHASES)),
    )


def _worst(torch: dict[str, np.ndarray], jax: dict[str, np.ndarray]) -> float:
    whole = rms(np.concatenate([array.ravel() for array in jax.values()]))
    return max(
        rms(array - jax[key]) / max(rms(jax[key]), 1e-6 * whole, 1e-300) for key, array in torch.items()
    )
