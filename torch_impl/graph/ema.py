"""A moving average of the weights, kept on the device inside the step. A refused update leaves it as it was.

Must not: touch what the step trains.
"""

from dataclasses import replace

import torch
from torch import Tensor

from spec.errors import RuleError
from torch_impl.memory import Arena
from torch_impl.step import Step


class Ema:
    """average <- decay * average + (1 - decay) * weights, after every update that was applied.

    Args:
      decay: in [0, 1).
    """

    def __init__(self, arena: Arena, decay: float) -> None:
        if not 0 <= decay < 1:
            raise RuleError("The decay of an average lies in [0, 1).", f"decay = {decay}")
        self.decay, self._arena = decay, arena
        self.flat = arena.master.clone()
        """The averages, laid out as the master weights; starts at them."""
        self._applied = arena.applied.clone()

    def following(self, step: Step) -> Step:
        """The step with the average moved at its end; it lies in the same graph."""
        update = step.update

        @torch.no_grad()
        def update_and_average(arena: Arena) -> None:
            self._applied.copy_(arena.applied)
            update(arena)
            moved = (arena.applied - self._applied).to(self.flat.dtype)
            weight = moved * (1 - self.decay)
            self.flat.add_(weight * (arena.master - self.flat))

        return replace(step, update=update_and_average)

    def tensors(self) -> dict[str, Tensor]:
        """Averages by canonical name, live."""
        return {slot.row.name: slot.view(self.flat) for slot in self._arena.slots}

    def lasting(self) -> list[Tensor]:
        """What one step leaves for the next."""
        return [self.flat]
