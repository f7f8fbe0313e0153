"""Steps to capture and to compare with: presets and a user's module, on the device, without the trainer."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spec.data.batches import open_source, rank_rows
from spec.edits import constants
from spec.presets import run_spec
from spec.run import Execution, Problem
from spec.weights import init_parameters
from torch_impl import runtime, state
from torch_impl.graph.adapt import Captured, capture_step, reducing
from torch_impl.graph.plan import FLAT, Plan
from torch_impl.memory import Arena
from torch_impl.models import Side, preset_side
from torch_impl.parallel import Ranks
from torch_impl.runtime import compiler_options
from torch_impl.step import Step, make_step


@dataclass
class Setup:
    """One run on this process's GPU, its state fresh."""

    problem: Problem
    ranks: Ranks
    arena: Arena
    step: Step
    rows: Callable[[int], dict[str, np.ndarray]]

    def device_batch(self, number: int) -> dict[str, Tensor]:
        """This rank's rows of a step on the device."""
        return {name: torch.from_numpy(a).to(self.ranks.device) for name, a in self.rows(number).items()}

    def state(self) -> dict[str, Tensor]:
        """Copies of everything that lasts."""
        arena = self.arena
        named = {"master": arena.master, "working": arena.working, "m": arena.m, "v": arena.v}
        named |= {"applied": arena.applied, "skipped": arena.skipped, **arena.buffers}
        return {name: tensor.detach().clone() for name, tensor in named.items()}


def alone() -> Ranks:
    """One process on the first GPU."""
    return Ranks(0, 1, 0, torch.device("cuda", 0))


def preset(
    name: str, ranks: Ranks, steps: int = 50, precision: str | None = None, micro_batches: int | None = None
) -> Setup:
    """A preset's step."""
    execution = Execution(device="cuda")
    spec = run_spec(
        name,
        steps=steps,
        devices=ranks.world_size,
        precision=precision,
        micro_batches=micro_batches,
        execution=execution,
    )
    setup = of_side(preset_side(spec.problem, constants(spec.problem)), spec.problem, ranks)
    initial = init_parameters(spec.problem.parameter_table(), spec.problem.seed_weights)
    state.load(setup.arena, {f"param/{key}": values for key, values in initial.items()})
    return setup


def of_side(side: Side, problem: Problem, ranks: Ranks, rows: Any = None) -> Setup:
    """Any model's step."""
    runtime.configure(problem, Execution(device="cuda"))
    arena = Arena(side.build(), problem.parameter_table(), problem.profile, ranks.device)
    step = make_step(side, problem, constants(problem), ranks)
    if rows is None:
        source, cut = open_source(problem), rank_rows(problem.global_batch, ranks.rank, ranks.world_size)
        rows = lambda number: source.rows(number, *cut)  # noqa: E731
    return Setup(problem, ranks, arena, step, rows)


def inductor(step: Step, problem: Problem) -> Step:
    """The step's two programs by inductor."""
    how: Any = {"fullgraph": True, "dynamic": False, "options": compiler_options(problem.profile)}
    return replace(step, loss=torch.compile(step.loss, **how), update=torch.compile(step.update, **how))


def run_eagerly(setup: Setup, step: Step, numbers: range, plan: Plan = FLAT) -> list[list[float]]:
    """Steps one by one; their metrics."""
    step = reducing(step, setup.arena, plan, setup.ranks.all_reduce)
    metrics = []
    for number in numbers:
        step(setup.arena, setup.device_batch(number))
        metrics.append(setup.arena.metrics.tolist())
    return metrics


def capture(setup: Setup, program: Step | None = None, plan: Plan = FLAT, **options: Any) -> Captured:
    """The step captured by one plan."""
    program = program or setup.step
    return capture_step(setup.step, lambda _: program, setup.arena, setup.device_batch(0), (plan,), **options)


def run_captured(setup: Setup, captured: Captured, numbers: range) -> list[list[float]]:
    """The same steps by launches; metrics read three steps late."""
    metrics, waiting = [], []
    for number in numbers:
        waiting.append(captured.step(setup.rows(number)))
        if len(waiting) > 3:
            metrics.append(captured.step.metrics(waiting.pop(0)))
    return metrics + [captured.step.metrics(number) for number in waiting]


def differences(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """Names of tensors whose bits differ."""
    assert one.keys() == other.keys()

    def bits(tensor: Tensor) -> Tensor:
        return tensor.contiguous().view(-1).view(torch.uint8)

    return [name for name in one if not torch.equal(bits(one[name]), bits(other[name]))]


class ConvNet(nn.Module):
    """A user's module as users write them: convolutions, batch norm, dropout from torch's generator."""

    def __init__(self, p: float, dropout: Callable[[float], nn.Module] = nn.Dropout) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), dropout(p)
        )
        self.head = nn.Linear(8 * 8 * 8, 10)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, 16, 16) -> (B, 10)."""
        return self.head(self.features(images).flatten(1))


def conv_side(p: float, dropout: Callable[[float], nn.Module] = nn.Dropout) -> Side:
    """The user's module with a summed cross-entropy."""

    def build() -> nn.Module:
        torch.manual_seed(11)
        return ConvNet(p, dropout)

    def loss(module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits, labels = module(batch["images"]), batch["labels"]
        total = nn.functional.cross_entropy(logits, labels, reduction="sum")
        return total, torch.full((), labels.numel(), dtype=torch.int64, device=labels.device)

    return Side(build, loss)


def conv_rows(number: int) -> dict[str, np.ndarray]:
    """Eight images and labels of a step."""
    rng = np.random.default_rng(number)
    images = rng.normal(size=(8, 3, 16, 16)).astype(np.float32)
    return {"images": images, "labels": rng.integers(0, 10, 8)}


def conv_setup(p: float, ranks: Ranks, micro_batches: int = 1, dropout: Any = nn.Dropout) -> Setup:
    """The user's module in the strict profile, 8 rows a step."""
    problem = run_spec("toy-mlp", steps=60, micro_batches=micro_batches).problem
    return of_side(conv_side(p, dropout), problem, ranks, conv_rows)
