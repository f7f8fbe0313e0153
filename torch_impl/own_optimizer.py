"""A user's own torch optimizer in the place of AdamW, on parameters that are views of the arena.

Everything around it is the step's own: the sums, the division, the clipping, the guard. For an update that is
refused the optimizer is not called, as in a loop that skips such a step: the host waits for the device to
tell. A graph cannot wait. There what the optimizer keeps stays where it is, a tensor that it replaces is
copied into the one before, and a refused update puts its tensors back. Must not: compile it, since what it
does is not known. Counterpart: `jax_impl/own_optimizer.py`.
"""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spec.errors import RuleError
from spec.weights import Tensors
from torch_impl.graph.cells import Places
from torch_impl.graph.held import Held
from torch_impl.graph.settings import Settings
from torch_impl.memory import Arena, Slot

Make = Callable[[list[tuple[str, nn.Parameter]]], torch.optim.Optimizer]
"""Named parameters -> the optimizer; torch's own take such pairs as they are."""


class OwnUpdate:
    """The update of a step by the optimizer that `make` returns, made at the first step.

    Args:
      guarded: from the sums to the next state by a rule on flat slices, refused where not finite; with
        `on_host` the host decides whether the rule is called.
    """

    def __init__(self, make: Make, guarded: Callable[..., None]) -> None:
        self._make, self._guarded = make, guarded
        self._own: _Own | None = None
        self._held: Held | None = None
        """What every update begins from, while that is to stay."""
        self._is_captured = False
        """Whether there is a graph, or is about to be one, that finds its state where it lies."""

    def __call__(self, arena: Arena) -> None:
        """One update of the arena."""
        if not self.has_begun:
            self.begin(arena)
        if self._held is not None:
            self._held.put_back()
        if self._is_captured:
            # The host's tensors are back already while they are held.
            self._begun.update_in_place(arena, self._guarded, device_alone=self._held is not None)
        else:
            self._guarded(arena, self._begun.rule, on_host=True)

    def begin(self, arena: Arena, capturable: bool = False) -> None:
        """Makes the optimizer; its state it makes itself, in the first step.

        Args:
          capturable: have it keep counters and rates on the device, where it can be told to.
        """
        # One part of the flat buffers: which parameters decay is the optimizer's own matter.
        arena.num_decayed = 0
        self._own = _Own(self._make, arena)
        if capturable:
            self._own.make_capturable()

    @property
    def has_begun(self) -> bool:
        """Whether the optimizer is there."""
        return self._own is not None

    @property
    def has_state(self) -> bool:
        """Whether the optimizer has made a step, in which it makes its state."""
        return self._own is not None and self._own.has_stepped

    @property
    def _begun(self) -> "_Own":
        assert self._own is not None, "made at the first step"
        return self._own

    def lasting(self) -> list[Tensor]:
        """What it keeps on the device from one step to the next, at fixed addresses."""
        return self._begun.lasting()

    def held(self) -> Held:
        """Its numbers on the host as they are now."""
        return self._begun.held()

    @contextlib.contextmanager
    def holding(self) -> Generator[None]:
        """While warm-up and capture run: each of their updates begins from the host's numbers of now."""
        self._begun.settings.record()
        self._held, self._is_captured = self.held(), True
        try:
            yield
        except BaseException:
            self._is_captured = False
            raise
        finally:
            self._held.put_back()
            self._held = None

    def take_rates(self) -> None:
        """Takes over learning rates that were set before a step that runs eagerly; see `Settings.take`."""
        self._begun.settings.take()

    def audit(self) -> None:
        """The same before a launch of a graph.

        Raises:
          RuleError: the graph has a setting as it was; see `Settings.audit`.
        """
        self._begun.settings.audit()


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
        self._names = {id(parameter): name for name, parameter in named}
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
        self.has_stepped = False
        self.settings = Settings(self._optimizer, self._flat.device)
        self._places = Places(self._optimizer, self._names)

    def make_capturable(self) -> None:
        """See `Settings.make_capturable`; one that cannot be told to may keep all on the device by itself."""
        dtype = torch.promote_types(self._flat.dtype, torch.float32)
        self.settings.make_capturable(every=False, dtype=dtype)

    def held(self) -> Held:
        """See `OwnUpdate`."""
        return Held(self._optimizer, self._flat.device, self._names)

    def lasting(self) -> list[Tensor]:
        """See `OwnUpdate`."""
        return [value for _, value in self._places.tensors() if value.device == self._flat.device]

    @torch.no_grad()
    def update_in_place(self, arena: Arena, guarded: Callable[..., None], device_alone: bool) -> None:
        """One update of the arena that leaves every tensor of the optimizer where it lies.

        Args:
          device_alone: tensors on the host are not looked after.
        """
        kept = {cell.path: (place, place.clone()) for cell, place in self._places.tensors()}
        skipped = arena.skipped.clone()
        guarded(arena, self.rule)
        refused = arena.skipped > skipped
        whose = {id(place): path for path, (place, _) in kept.items()}
        # Tensors that changed places would be written over before they are read.
        after = [
            (cell, now.clone() if whose.get(id(now), cell.path) != cell.path else now)
            for cell, now in self._places.tensors()
        ]
        for cell, now in after:
            if device_alone and now.device != self._flat.device:
                continue
            place, before = kept.get(cell.path, (now, None))
            if before is None or (place.shape, place.dtype) != (now.shape, now.dtype):
                # Made by the very step that was refused, it begins at zero as it would have.
                place, before = now, torch.zeros_like(now)
            place.copy_(torch.where(refused.to(now.device), before, now).reshape(now.shape))
            cell.put(place)

    def updated(self, grads: Tensors) -> Tensors:
        """One update outside a step; copies of the parameters after it."""
        self._step(lambda slot: torch.from_numpy(grads[slot.row.name]).to(self._flat))
        return {
            slot.row.name: parameter.detach().cpu().numpy().copy() for slot, parameter in self._parameters
        }

    def rule(self, grad: Tensor, state: Any, row: Tensor, lr: Tensor, decayed: bool) -> Any:
        """The optimizer's step on clipped gradients; the moments of the arena stay zero."""
        param, m, v = state
        self.has_stepped = True
        self._flat.copy_(param)
        self._step(lambda slot: slot.view(grad))
        return self._flat, m, v

    def _step(self, grad_of: Callable[[Slot], Tensor]) -> None:
        for slot, parameter in self._parameters:
            parameter.grad = grad_of(slot)
        with torch.enable_grad():
            self._optimizer.step()
