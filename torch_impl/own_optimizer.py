"""A user's own torch optimizer in the place of AdamW, on parameters that are views of the arena.

Everything around it is the step's own: the sums, the division, the clipping, the guard. Where an update is
refused, the optimizer's state is as it was. It runs eagerly, since what it does is not known. Counterpart:
`jax_impl/own_optimizer.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spec.errors import RuleError
from spec.weights import Tensors
from torch_impl.memory import Arena, Slot

Make = Callable[[list[tuple[str, nn.Parameter]]], torch.optim.Optimizer]
"""Named parameters -> the optimizer; torch's own take such pairs as they are."""


def own_update(make: Make, guarded: Callable[[Arena, Any], None]) -> Callable[[Arena], None]:
    """The update of a step by the optimizer that `make` returns, made at the first step.

    Args:
      guarded: from the sums to the next state by a rule on flat slices, refused where not finite.
    """
    made: list[_Own] = []

    def update(arena: Arena) -> None:
        if not made:
            # One part of the flat buffers: which parameters decay is the optimizer's own matter.
            arena.num_decayed = 0
            made.append(_Own(make, arena))
        made[0].update(arena, guarded)

    return update


def updates(make: Make, arena: Arena, gradients: Sequence[Tensors]) -> Iterator[Tensors]:
    """The parameters after each update from given gradients, `NAME` -> array, by a new optimizer that begins
    at the arena's parameters; the arena stays as it is."""
    own = _Own(make, arena)
    for grads in gradients:
        yield own.updated(grads)


class _Own:
    """The optimizer, and flat memory of its own in which its parameters lie."""

    def __init__(self, make: Make, arena: Arena) -> None:
        self._flat = arena.master[: arena.num_trainable].clone()
        slots = [slot for slot in arena.slots if slot.trainable]
        named = [(slot.row.name, nn.Parameter(slot.view(self._flat))) for slot in slots]
        self._parameters = list(zip(slots, (parameter for _, parameter in named), strict=True))
        with torch.enable_grad():
            self._optimizer = make(named)
        if not isinstance(self._optimizer, torch.optim.Optimizer):
            raise RuleError(
                "optimizer(named_parameters) returns a torch.optim.Optimizer.",
                f"it returned {type(self._optimizer).__name__}",
            )
        held = {id(p) for group in self._optimizer.param_groups for p in group["params"]}
        missing = [name for name, parameter in named if id(parameter) not in held]
        if missing:
            raise RuleError(
                "The optimizer holds every parameter that is trained.",
                f"{missing[0]} is in no group ({len(missing)} such)",
                "give it to the optimizer; what is to stay, detach() in torch and lax.stop_gradient in jax",
            )

    def update(self, arena: Arena, guarded: Callable[[Arena, Any], None]) -> None:
        """One update of the arena."""
        before = {name: tensor.clone() for name, tensor in self._state().items()}
        skipped = arena.skipped.clone()
        guarded(arena, self._rule)
        refused = arena.skipped > skipped
        for name, tensor in self._state().items():
            old = before.get(name)
            # Made by the very step that was refused, it begins at zero as it would have.
            kept = torch.zeros_like(tensor) if old is None else old
            tensor.copy_(torch.where(refused.to(tensor.device), kept, tensor).reshape(tensor.shape))

    def updated(self, grads: Tensors) -> Tensors:
        """One update outside a step; copies of the parameters after it."""
        self._step(lambda slot: torch.from_numpy(grads[slot.row.name]).to(self._flat))
        return {
            slot.row.name: parameter.detach().cpu().numpy().copy() for slot, parameter in self._parameters
        }

    def _rule(self, grad: Tensor, state: Any, row: Tensor, lr: Tensor, decayed: bool) -> Any:
        """The optimizer's step on clipped gradients; the moments of the arena stay zero."""
        param, m, v = state
        self._flat.copy_(param)
        self._step(lambda slot: slot.view(grad))
        return self._flat, m, v

    def _step(self, grad_of: Callable[[Slot], Tensor]) -> None:
        for slot, parameter in self._parameters:
            parameter.grad = grad_of(slot)
        with torch.enable_grad():
            self._optimizer.step()

    def _state(self) -> dict[tuple[int, str], Tensor]:
        """What the optimizer keeps between steps."""
        return {
            (k, name): value
            for k, state in enumerate(self._optimizer.state.values())
            for name, value in state.items()
            if isinstance(value, Tensor)
        }
