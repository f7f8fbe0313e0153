"""Small problems and trainers that the tests of the JAX side share; sizes are the tests' own."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from jax_impl.models import Side
from jax_impl.trainer import Trainer
from spec.edits import Edit
from spec.run import AdamW, DataSpec, Execution, Problem, RunSpec
from spec.schedule import Schedule
from spec.workloads.gpt import GptSizes
from spec.workloads.mlp import MlpSizes

GPT = GptSizes(vocab=61, seq_len=12, num_layers=1, d_model=16, num_heads=2)
MLP = MlpSizes(d_in=5, d_hidden=7, d_out=3)
STATE = ("param", "m", "v")


def gpt_problem(**changes: Any) -> Problem:
    """A small GPT on ragged synthetic rows, with clipping and a schedule that moves."""
    settings: dict[str, Any] = {
        "workload": "gpt",
        "sizes": GPT,
        "optimizer": AdamW(),
        "schedule": Schedule(kind="cosine", peak_lr=3e-3, warmup_steps=3, decay_steps=10, final_lr=3e-4),
        "data": DataSpec(kind="synthetic", ragged=True),
        "global_batch": 8,
        "steps": 10,
    }
    return Problem(**settings | changes)


def mlp_problem(**changes: Any) -> Problem:
    """A small MLP whose gradients are clipped at every step."""
    settings: dict[str, Any] = {
        "workload": "mlp",
        "sizes": MLP,
        "optimizer": AdamW(max_norm=0.05),
        "schedule": Schedule(kind="linear", peak_lr=1e-2, warmup_steps=4, decay_steps=25, final_lr=1e-3),
        "data": DataSpec(kind="synthetic"),
        "global_batch": 8,
        "steps": 30,
    }
    return Problem(**settings | changes)


def run_spec(problem: Problem, world_size: int = 1) -> RunSpec:
    """The problem as a run on CPUs."""
    return RunSpec(name="test", problem=problem, execution=Execution(world_size=world_size))


def make_trainer(
    problem: Problem, mode: str = "jit", edits: Iterable[Edit] = (), side: Side | None = None
) -> Trainer:
    """A trainer in this process."""
    return Trainer(problem, Execution(), mode, edits, side=side)


def train(trainer: Trainer, num_steps: int, start: int = 0) -> list[float]:
    """Steps [start, start + num_steps); the losses."""
    losses = []
    for step in range(start, start + num_steps):
        trainer.step(trainer.feed.rows(step))
        losses.append(trainer.metrics().loss)
    return losses


def bare(tensors: dict[str, np.ndarray], phase: str = "param") -> dict[str, np.ndarray]:
    """The tensors of one phase under their names alone."""
    prefix = f"{phase}/"
    return {key.removeprefix(prefix): array for key, array in tensors.items() if key.startswith(prefix)}


def without_key_bias(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The keys' bias has a zero gradient; Adam divides its rounding by its own size."""
    cut = slice(GPT.d_model, 2 * GPT.d_model)
    return {key: np.delete(a, cut) if key.endswith("qkv.bias") else a for key, a in tensors.items()}


def assert_equal_bits(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Same names, same bits."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].tobytes() == array.tobytes(), name


def relative_difference(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """The largest over tensors of RMS(found - expected) / RMS(expected); 0 where both are all zero."""
    assert found.keys() == expected.keys()
    worst = 0.0
    for name, truth in expected.items():
        difference = np.asarray(found[name], np.float64) - np.asarray(truth, np.float64)
        scale = np.sqrt(np.mean(np.square(truth, dtype=np.float64)))
        if scale or difference.any():
            worst = max(worst, float(np.sqrt(np.mean(difference**2)) / (scale or 1.0)))
    return worst
