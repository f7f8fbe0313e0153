"""Between the state of a run and arrays under canonical names: `phase/name`, in the layout of the table.

Torch's layout is the table's, so nothing is transposed here. Loading writes in place: every address stays.
Must not: touch files. Counterpart: `jax_impl/state.py`, the one place that transposes.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from spec.errors import RuleError
from spec.weights import Tensors

LOADED_PHASES = ("param", "m", "v", "buffer")
"""The phases that make up a state; the others are only looked at."""

COUNTERS = ("meta/applied", "meta/skipped")


class State(Protocol):
    """What holds a run's state: the arena, or a baseline's model and optimizer."""

    module: nn.Module
    applied: Tensor
    skipped: Tensor
    metrics: Tensor
    ties: list[list[str]]

    def tensors(self, phase: str) -> dict[str, Tensor]:
        """The tensors of a phase by canonical name; live ones where the phase is a loaded one."""
        ...

    def describe(self) -> list[dict[str, Any]]:
        """What each parameter is: name, shape, dtype, decayed, trainable."""
        ...

    def refresh(self) -> None:
        """Brings copies up to date after parameters were written."""
        ...


@torch.no_grad()
def load(state: State, tensors: Tensors) -> None:
    """Writes arrays into the state, in place.

    Args:
      tensors: keys `phase/name` of `LOADED_PHASES`, and `COUNTERS`. A phase that is present must be whole;
        one that is absent stays as it is. Values are rounded to the dtype of where they go.

    Raises:
      RuleError: a name is unknown or missing, or a shape differs.
    """
    for key in COUNTERS:
        if key in tensors:
            getattr(state, key.removeprefix("meta/")).fill_(int(tensors[key].item()))
    for phase in LOADED_PHASES:
        given = {k.removeprefix(f"{phase}/"): a for k, a in tensors.items() if k.startswith(f"{phase}/")}
        if given:
            _load_phase(phase, state.tensors(phase), given)
    state.refresh()


def _load_phase(phase: str, held: dict[str, Tensor], given: Tensors) -> None:
    """Writes one phase whole."""
    misfits = sorted(held.keys() ^ given.keys())
    if misfits:
        name = misfits[0]
        raise RuleError(
            "A state has the tensors of the model, no more and no fewer.",
            f"{phase}/{name} is {'missing' if name in held else 'not in the model'} ({len(misfits)} such)",
            "was it written for another model?",
        )
    for name, tensor in held.items():
        array = given[name]
        if array.shape != tuple(tensor.shape):
            raise RuleError(
                "A tensor of a state has the shape of the model's.",
                f"{phase}/{name} is {array.shape}, in the model {tuple(tensor.shape)}",
                "was it written for other sizes?",
            )
        # A copy that keeps an array of no dimensions one; NumPy's ascontiguousarray gives it one.
        tensor.copy_(torch.from_numpy(np.array(array, order="C")))


def export(state: State, phases: Iterable[str]) -> Tensors:
    """Copies of the named phases as arrays on the host, keys `phase/name`; waits for the device."""
    return {
        f"{phase}/{name}": tensor.detach().to("cpu", copy=True).numpy()
        for phase in phases
        for name, tensor in state.tensors(phase).items()
    }
