"""Side: what a trainer needs to know of a model, namely how it is built and what its loss is.

The presets' models and a user's own come in by this same door. Must not: hold parameters or know the step.
Counterpart: `jax_impl/models/__init__.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from spec.edits import Constants
from spec.run import Problem
from torch_impl.models import gpt, mlp

_WORKLOADS = {"gpt": gpt, "mlp": mlp}


@dataclass(frozen=True)
class Side:
    """A model and its loss."""

    build: Callable[[], nn.Module]
    """Makes the module. Its parameters may lie on the meta device: the trainer gives them memory."""
    loss: Callable[[nn.Module, dict[str, Tensor]], tuple[Tensor, Tensor]]
    """(module, batch) -> (sum of the losses, number of losses), both 0-dim. Calls the module and asks nothing
    else of it, since it may be wrapped."""
    optimizer: Callable[[list[tuple[str, nn.Parameter]]], torch.optim.Optimizer] | None = None
    """Named parameters -> an optimizer in the place of AdamW; None for AdamW."""
    logged_lr: Callable[[int], float] | None = None
    """Step -> the learning rate that the user's own loop logs of it; None where it logs none."""


def preset_side(problem: Problem, constants: Constants) -> Side:
    """The model and loss of the problem's workload."""
    workload = _WORKLOADS[problem.workload]
    return Side(
        build=lambda: workload.build(problem.sizes, problem.profile, constants),  # type: ignore[arg-type]
        loss=workload.loss,
    )
