"""A user's torch side as a `Side`: its file imported, its model checked, its loss called in one way.

Floating-point arrays of a batch come in the compute dtype of the precision profile, as the parameters do.
Must not: change what the user's code computes. Counterpart: `jax_impl/models/pair.py`.
"""

from typing import Any

import torch
from torch import Tensor, nn

from spec.errors import RuleError
from spec.pairs import user_code
from spec.run import Problem
from spec.workloads.pair import PairFiles
from torch_impl.models import Side


def load_side(files: PairFiles, problem: Problem) -> Side:
    """The torch side of a pair.

    Raises:
      RuleError: its file cannot be imported, or lacks `build` or `loss`.
    """
    path = files.torch
    module = user_code.load(path, ["build", "loss"])
    compute = getattr(torch, problem.profile.compute)

    def build() -> nn.Module:
        torch.manual_seed(problem.seed_weights)
        with user_code.told(path, "build() returns a model."):
            model = module.build()
        _check(model, path)
        return model.train()

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        rounded = {
            name: values.to(compute) if values.is_floating_point() else values
            for name, values in batch.items()
        }
        return _sum_and_count(module.loss(model, rounded), path)

    return Side(build, loss)


def _check(model: Any, path: str) -> None:
    if not isinstance(model, nn.Module):
        raise RuleError(
            "build() returns a torch.nn.Module.", f"{path}: build() returned {type(model).__name__}"
        )
    for name, part in model.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise RuleError(
                "A compared model draws no random numbers: the frameworks' generators differ.",
                f"{path}: {name} is {type(part).__name__}(p={part.p})",
                "build it with p=0",
            )


def _sum_and_count(made: Any, path: str) -> tuple[Tensor, Tensor]:
    if not isinstance(made, tuple) or len(made) != 2:
        raise RuleError(
            "loss(model, batch) returns (sum of the losses, how many they are).",
            f"{path}: loss returned {type(made).__name__}",
            "return total, count; leave the mean to the step, which divides once for the global batch",
        )
    total, count = made
    if not isinstance(total, Tensor) or total.numel() != 1 or not total.is_floating_point():
        raise RuleError(
            "The sum of the losses is one floating-point number.",
            f"{path}: loss returned {_words(total)} as the sum",
            "reduce with sum",
        )
    if not isinstance(count, Tensor):
        count = torch.full((), count, dtype=total.dtype, device=total.device)
    if count.numel() != 1:
        raise RuleError("The count of the losses is one number.", f"{path}: loss returned {_words(count)}")
    return total.reshape(()), count.reshape(())


def _words(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
