"""Side: what a trainer needs to know of a model, namely how it is built and what its loss is.

The presets' models and a user's own come in by this same door. Must not: hold parameters or know the step.
Counterpart: `torch_impl/models/__init__.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import optax
from flax import nnx

from jax_impl.models import gpt, mlp
from spec.edits import Constants
from spec.mapping.links import Link
from spec.run import Problem

_WORKLOADS = {"gpt": gpt, "mlp": mlp}


@dataclass(frozen=True)
class Side:
    """A model and its loss."""

    build: Callable[[], nnx.Module]
    """Makes the module. Its `nnx.Param` variables are trained; they may be abstract (`nnx.eval_shape`)."""
    loss: Callable[[nnx.Module, dict[str, jax.Array]], tuple[jax.Array, jax.Array]]
    """(module, batch) -> (sum of the losses, number of losses), both 0-dim. Traced; calls the module and asks
    nothing else of it."""
    optimizer: Callable[[], optax.GradientTransformation] | None = None
    """Makes a transformation in the place of AdamW; None for AdamW."""
    links: tuple[Link, ...] = ()
    """How the canonical tensors lie in this module's; empty where the names are the same."""
    logged_lr: Callable[[int], float] | None = None
    """Step -> the learning rate that the user's own loop logs of it; None where it logs none."""


def preset_side(problem: Problem, constants: Constants) -> Side:
    """The model and loss of the problem's workload."""
    workload = _WORKLOADS[problem.workload]
    return Side(
        build=lambda: workload.build(problem.sizes, problem.profile, constants),  # type: ignore[arg-type]
        loss=workload.loss,
    )
