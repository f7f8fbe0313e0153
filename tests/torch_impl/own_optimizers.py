"""An optimizer of a user's own that can be captured, and the toy MLP's trainers with such."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import torch_impl
from spec.edits import constants
from spec.run import Execution, OwnOptimizer
from spec.weights import init_parameters
from tests.torch_impl.small import mlp_problem
from torch_impl.models import preset_side

PROBLEM = mlp_problem(optimizer=OwnOptimizer(max_norm=0.5))
Named = list[tuple[str, nn.Parameter]]


class DeviceMomentum(torch.optim.Optimizer):
    """Its counter is a tensor; its momentum is a new tensor after every step."""

    def __init__(self, named: Named) -> None:
        super().__init__(named, {"lr": 1e-2})
        self.num_steps = torch.zeros((), device=named[0][1].device)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """SGD with momentum at a rate that falls."""
        self.num_steps += 1
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state["m"] = 0.9 * state["m"] + p.grad if state else p.grad.clone()
            p.sub_(state["m"] * (self.param_groups[0]["lr"] / self.num_steps))


def trainer_of(make: Callable[[Named], torch.optim.Optimizer], mode: str = "eager") -> torch_impl.Trainer:
    preset = preset_side(PROBLEM, constants(PROBLEM))
    side = torch_impl.Side(preset.build, preset.loss, make)
    trainer = torch_impl.Trainer(PROBLEM, Execution(), mode, side=side)
    initial = init_parameters(PROBLEM.parameter_table(), PROBLEM.seed_weights)
    trainer.load({f"param/{name}": array for name, array in initial.items()})
    return trainer


def begun(make: Callable[[Named], torch.optim.Optimizer]) -> torch_impl.Trainer:
    """A trainer after its first step, in which the optimizer made its state."""
    trainer = trainer_of(make)
    trainer.step(trainer.feed.rows(0))
    return trainer


def optimizer_of(trainer: torch_impl.Trainer) -> Any:
    assert trainer._own is not None
    return trainer._own._begun._optimizer


def state_of(trainer: torch_impl.Trainer) -> list[Tensor]:
    assert trainer._own is not None
    return [tensor.clone() for tensor in [*trainer.state.lasting(), *trainer._own.lasting()]]  # type: ignore[union-attr]
