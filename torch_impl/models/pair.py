"""A user's torch side as a `Side`: its file imported, its model checked, its loss called in one way.

Floating-point arrays of a batch come in the compute dtype of the precision profile, as the parameters do.
Must not: change what the user's code computes. Counterpart: `jax_impl/models/pair.py`.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from spec.description import DRAWS
from spec.errors import RuleError
from spec.own_optimizer import OwnOptimizer
from spec.pairs import user_code
from spec.run import Problem
from spec.workloads.pair import PairFiles
from torch_impl.models import Side


def load_side(files: PairFiles, problem: Problem) -> Side:
    """The torch side of a pair.

    Raises:
      RuleError: its file cannot be imported, or lacks `build`, `loss` or an `optimizer` that is its own.
    """
    path = files.torch
    is_own = isinstance(problem.optimizer, OwnOptimizer)
    module = user_code.load(path, ["build", "loss", *(["optimizer"] if is_own else [])])
    compute = getattr(torch, problem.profile.compute)
    other = files.computes != problem.profile.compute
    defaults = _Defaults(getattr(torch, files.computes)) if other else contextlib.nullcontext()

    def build() -> nn.Module:
        # Weights and rows are drawn from a seed of any size; torch's generator takes 64 bits of it.
        torch.manual_seed(problem.seed_weights % 2**64)
        with user_code.told(path, "build() returns a model."):
            model = module.build()
        _check(model, path)
        return model.train()

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        rounded = {
            name: values.to(compute) if values.is_floating_point() else values
            for name, values in batch.items()
        }
        with defaults:
            return _sum_and_count(module.loss(model, rounded), path)

    return Side(build, loss, module.optimizer if is_own else None, user_code.logged_lr(module))


class _Defaults(TorchFunctionMode):
    """Gives defaults that hang on the dtype as they are in the run's own, whatever is computed in."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._eps = torch.finfo(dtype).eps

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """The call; an RMSNorm without an eps with that of the run's dtype."""
        kwargs = dict(kwargs or {})
        if func is F.rms_norm and (args[3] if len(args) > 3 else kwargs.get("eps")) is None:
            args, kwargs = args[:3], kwargs | {"eps": self._eps}
        return func(*args, **kwargs)


def _check(model: Any, path: str) -> None:
    if not isinstance(model, nn.Module):
        raise RuleError(
            "build() returns a torch.nn.Module.", f"{path}: build() returned {type(model).__name__}"
        )
    for name, part in model.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise RuleError(
                DRAWS,
                f"{path}: {name} is {type(part).__name__}(p={part.p})",
                "build it with p=0",
            )


def _sum_and_count(made: Any, path: str) -> tuple[Tensor, Tensor]:
    if not isinstance(made, tuple) or len(made) != 2:
        raise RuleError(
            "loss(model, batch) returns (sum of the losses, how many they are).",
            f"{path}: loss returned {_returned(made)}",
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


def _returned(made: Any) -> str:
    if isinstance(made, tuple):
        return f"a tuple of {len(made)}"
    return f"a single array, {_words(made)}" if isinstance(made, Tensor) else type(made).__name__


def _words(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
