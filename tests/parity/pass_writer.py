"""Writes pass folders as a side writes them, out of formulas: what the tests of the judge read.

Nothing here trains. Values are smooth functions of a seed, plausible in size, equal for every side; a test
changes what it is about before the folder is written.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spec import codec, philox, record
from spec.edits import constants, device_table
from spec.job import Job
from spec.presets import run_spec
from spec.run import Execution, RunSpec
from spec.weights import Tensors, init_parameters, save_tensors, state_digest, tensor_sha256
from spec.workloads.gpt import GptSizes


def small_spec(steps: int = 4, world_size: int = 1, precision: str = "strict") -> RunSpec:
    """A GPT of one narrow layer, so that there are rows whose exact gradient is zero."""
    spec = run_spec("tiny", steps=steps, devices=world_size, precision=precision)
    sizes = GptSizes(vocab=32, seq_len=8, num_layers=1, d_model=8, num_heads=2)
    return dataclasses.replace(
        spec,
        problem=dataclasses.replace(spec.problem, sizes=sizes),
        execution=Execution(world_size=world_size),
    )


def small_job(folder: Path, side: str, spec: RunSpec | None = None) -> Job:
    """A run job that observes what the referee asks for."""
    spec = spec or small_spec()
    return Job(
        side=side,
        purpose="run",
        spec=spec,
        mode=spec.execution.mode(side),
        steps=spec.problem.steps,
        out=str(folder),
        observe=("grad@0", "param@0", "m@last", "v@last", "param@last"),
    )


@dataclass
class Content:
    """Everything of a pass folder, to be changed before it is written."""

    job: Job
    manifest: dict[str, Any]
    steps: list[list[dict[str, Any]]]
    """By rank."""
    tensors: dict[int, Tensors]
    """By step, keys phase/name."""
    digests: list[dict[str, Any]]
    """By rank."""
    finished: bool = True

    def write(self) -> Path:
        """Writes the folder and returns it."""
        folder = Path(self.job.out)
        self.job.write()
        record.write_json(folder / "manifest.json", self.manifest)
        for rank, lines in enumerate(self.steps):
            with record.Lines(folder / f"steps.rank{rank}.jsonl") as file:
                for line in lines:
                    file.write(line)
            record.write_json(folder / f"digest.rank{rank}.json", self.digests[rank])
            (folder / f"log.rank{rank}.txt").write_text("")
        for step, tensors in self.tensors.items():
            save_tensors(folder / "tensors" / f"step{step:06d}.safetensors", tensors)
        if self.finished:
            record.write_json(folder / "done.json", {"seconds": 0.5})
        return folder

    def set_value(self, step: int, name: str, value: float) -> None:
        """Sets loss, grad_norm or lr of a step on every rank."""
        for lines in self.steps:
            lines[step] |= record.float_fields(name, value)


def make_content(job: Job) -> Content:
    """The content of a clean pass."""
    problem, world_size = job.spec.problem, job.spec.execution.world_size
    table = problem.parameter_table()
    initial = init_parameters(table, problem.seed_weights)
    states = {step: _state(job, initial, step) for step in _observed_steps(job)}
    last = states[max(states)] if states else {}
    digest = {"step": job.steps} | {phase: state_digest(_bare(last, phase)) for phase in ("param", "m", "v")}
    rates = device_table(problem, constants(problem, job.edits))[:, 0]
    return Content(
        job=job,
        manifest={
            "side": job.side,
            "purpose": job.purpose,
            "mode_asked": job.mode,
            "mode_ran": job.mode,
            "environment": {"gpus": None},
            "facts": {
                "parameters": [
                    {
                        "name": row.name,
                        "shape": list(row.shape),
                        "dtype": problem.profile.master,
                        "decayed": row.decayed,
                        "trainable": True,
                    }
                    for row in table
                ],
                "ties": [],
                "precision": codec.to_dict(problem.profile),
                "world_size": world_size,
                "num_params": sum(row.size for row in table),
            },
            "init_sha256": {name: tensor_sha256(array) for name, array in initial.items()},
            "init_digest": state_digest(initial),
            "probes": [{"name": "matmul", "expected": "ieee", "got": "ieee", "ok": True}],
            "compile_s": None,
            "capture": None,
            "reasons": {"compile_s": "nothing was compiled"},
        },
        steps=[
            [_line(step, rank, float(rates[step])) for step in range(job.steps)] for rank in range(world_size)
        ],
        tensors=states,
        digests=[dict(digest) for _ in range(world_size)],
    )


def write_pass(folder: Path, side: str, spec: RunSpec | None = None) -> Path:
    """A clean pass, written."""
    return make_content(small_job(folder, side, spec)).write()


def _observed_steps(job: Job) -> list[int]:
    return sorted({step for _, step in map(job.observed_at, job.observe)})


def _line(step: int, rank: int, lr: float) -> dict[str, Any]:
    return {
        "step": step,
        **record.float_fields("loss", 5.5 / (1 + 0.01 * step)),
        **record.float_fields("grad_norm", 2.5 / (1 + 0.02 * step)),
        **record.float_fields("lr", lr),
        "skipped": 0,
        "tokens": 100 + rank,
        "batch_digest": f"{1000 * step + rank + 1:016x}",
    }


def _state(job: Job, initial: Tensors, step: int) -> Tensors:
    """Gradients of size 0.01, moments and parameters as one AdamW step from zero would leave them."""
    state: Tensors = {}
    phases = {phase for phase, at in map(job.observed_at, job.observe) if at == step}
    for name, start in initial.items():
        grad = philox.normals(philox.key(step, "grad", name), start.shape, 0.01)
        values = {"grad": grad, "clipped": grad / 2, "m": grad / 10, "v": grad * grad / 20}
        values["param"] = start - np.float32(1e-3) * np.sign(grad)
        dtype = job.spec.problem.profile.master
        state |= {f"{phase}/{name}": values[phase].astype(dtype) for phase in phases & values.keys()}
    return state


def _bare(state: Tensors, phase: str) -> Tensors:
    return {key.partition("/")[2]: array for key, array in state.items() if key.startswith(f"{phase}/")}


def write_windows(folder: Path, step_ms: float) -> None:
    """The raw samples of a `time` job: windows near `step_ms`, a few calls."""
    with record.Lines(folder / "windows.jsonl") as lines:
        lines.write({"kind": "start", "initial": True, "reason": None})
        for window in range(6):
            wall_s = 5e-3 * step_ms * (1 + 0.001 * window)
            lines.write({"kind": "window", "steps": 5, "wall_s": wall_s, "ended": 1e9 + window})
        for call in range(4):
            lines.write({"kind": "dispatch", "us": 100.0 + call})
        lines.write({"kind": "memory", "peak_mem_bytes": None, "reason": "not counted on a CPU"})
