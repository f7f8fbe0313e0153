"""Between the state of a run and arrays under canonical names: `phase/name`, in the layout of the table.

Torch's layout is the table's, so nothing is transposed here. Loading writes in place: every address stays.
Must not: touch files. Counterpart: `jax_impl/state.py`, the one place that transposes.
"""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from spec.state import COUNTERS, LOADED_PHASES, check_names, check_shape, of_phase
from spec.weights import Tensors


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
def load(state: State, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes arrays into the state, in place, one by one: a mapping that reads them when asked is fine.

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
        given = of_phase(tensors, phase)
        if not given:
            continue
        held = state.tensors(phase)
        check_names(phase, held, given)
        for name, tensor in held.items():
            array = given[name]
            check_shape(phase, name, tuple(tensor.shape), array.shape)
            tensor.copy_(_on_host(array))
    state.refresh()


def _on_host(array: np.ndarray) -> Tensor:
    """The array as a tensor that shares its memory, to be read only."""
    with warnings.catch_warnings():
        # What is mapped from a file cannot be written to, and is not.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array, order="C"))


def export(state: State, phases: Iterable[str]) -> Tensors:
    """Copies of the named phases as arrays on the host, keys `phase/name`; waits for the device."""
    return {
        f"{phase}/{name}": tensor.detach().to("cpu", copy=True).numpy()
        for phase in phases
        for name, tensor in state.tensors(phase).items()
    }
