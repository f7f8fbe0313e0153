"""Updates on the flat buffers besides the trainer's AdamW: SGD with momentum, and a learning rate for each
group.

Each is what `Step.update` is: from the sums in the arena to its next state and metrics, refused on the device
where a number is not finite. Must not: read a number of the host's that may change.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from spec.errors import RuleError
from torch_impl.memory import Arena
from torch_impl.step import Moved, Rule, guarded_update


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """SGD with momentum as `torch.optim.SGD` computes it: m <- momentum m + (g + decay p); p <- p - lr m."""

    momentum: float = 0.9
    weight_decay: float = 0.0

    def __call__(self, grad: Tensor, state: Moved, row: Tensor, lr: Tensor, decayed: bool) -> Moved:
        """One update; `v` stays unused."""
        param, m, v = state
        if decayed and self.weight_decay:
            grad = grad + self.weight_decay * param
        m = self.momentum * m + grad
        return param - lr * m, m, v


def make_update(
    table: Tensor, rule: Rule, max_norm: float | None, rates: Tensor | None = None
) -> Callable[[Arena], None]:
    """The update of a rule.

    Args:
      table: (steps, columns) on the device, column 0 the learning rate; row t for the update after t
        applied ones.
      max_norm: clip to this global norm; None for no clipping.
      rates: factor on the learning rate of every trainable element (see `rates_by_name`); None for 1.
    """

    def update(arena: Arena) -> None:
        guarded_update(arena, table, rule, max_norm, rates=rates)

    return update


def rates_by_name(arena: Arena, factors: Mapping[str, float]) -> Tensor:
    """A factor on the learning rate for every trainable element.

    Args:
      factors: by shell pattern over canonical names; the first that fits counts, and 1 where none does.

    Raises:
      RuleError: a pattern fits no trainable parameter.
    """
    names = [slot.row.name for slot in arena.slots if slot.trainable]
    unused = [pattern for pattern in factors if not any(fnmatchcase(name, pattern) for name in names)]
    if unused:
        raise RuleError(
            "A pattern for learning rates fits a trainable parameter.", f"{unused[0]!r} fits none"
        )
    rates = torch.ones_like(arena.grad)
    for slot in arena.slots:
        fitting = [factor for pattern, factor in factors.items() if fnmatchcase(slot.row.name, pattern)]
        if slot.trainable and fitting:
            slot.view(rates).fill_(fitting[0])
    return rates
