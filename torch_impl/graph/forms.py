"""What a whole step is made from: the step in its forms, the state that it changes, and how it is fed.

Must not: capture or launch anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

DeviceStep = Callable[[Any], None]
"""A step on a batch of device tensors."""


class State(Protocol):
    """What a step changes."""

    metrics: Tensor
    """float32 or float64, at a fixed address; what the host reads of a step."""

    def lasting(self) -> list[Tensor]:
        """Everything that one step leaves for the next."""
        ...

    def pointers(self) -> dict[str, Tensor]:
        """Every tensor of the step that must stay where it is, by name, as it is reached now."""
        ...


@dataclass(frozen=True)
class Forms:
    """One step in up to three forms, which differ only in how they reduce over ranks."""

    captured: DeviceStep
    """Reduces through the communicator that the graph owns."""
    local: DeviceStep
    """Does not reduce: for warm-up, in which a rank that fails must not leave the others waiting."""
    eager: DeviceStep
    """Runs as it is, through the communicator of everything else."""

    @classmethod
    def alone(cls, step: DeviceStep) -> "Forms":
        """Of a step that one process makes alone."""
        return cls(step, step, step)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a step is captured and fed; nothing here changes a number."""

    input_slots: int = 8
    """Batches that the host can be ahead of the device."""
    metric_slots: int = 64
    """Steps whose metrics can still be read."""
    staged_bytes: int = 4 << 20
    """Batches larger than this come through a copy stream instead of being read over the bus."""
    stall_s: float = 60.0
    """How long nothing may come from the device before it is asked what ails it."""
