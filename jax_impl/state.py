"""Between the state of a run and arrays under canonical names: `phase/name`, in the layout of the table.

The table's layout is torch's, and this is the one place that transposes: the matrix of an affine layer is
(out, in) there and (in, out) in flax; every other array is the same. Must not: touch files. Counterpart:
`torch_impl/state.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from flax import nnx

from jax_impl.memory import Arrays
from jax_impl.parallel import Ranks
from spec.params import ParamSpec
from spec.state import COUNTERS, LOADED_PHASES, check_names, check_shape, of_phase
from spec.weights import Tensors


class State(Protocol):
    """What holds a run's state: the arena, or a baseline's model and optimizer."""

    ranks: Ranks
    rows: tuple[ParamSpec, ...]
    ties: list[list[str]]
    train_state: Any
    """The tree of arrays that a step takes and gives back."""
    seen: Any
    """Gradients of the last step that was observed, by phase."""

    @property
    def applied(self) -> int:
        """Updates made so far; waits for the device."""
        ...

    @property
    def skipped(self) -> int:
        """Updates refused so far; waits for the device."""
        ...

    def module(self, params: Arrays, buffers: Arrays) -> nnx.Module:
        """The module with these arrays in it, inside a trace."""
        ...

    def tensors(self, phase: str) -> dict[str, Any]:
        """The arrays of a phase by canonical name, in this framework's layout; to be read, not kept."""
        ...

    def write(self, phase: str, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
        """Puts host arrays in place of those of a phase of the state, one by one, by name."""
        ...

    def count(self, applied: int | None, skipped: int | None) -> None:
        """Sets the counters that are given."""
        ...

    def describe(self) -> list[dict[str, Any]]:
        """What each parameter is: name, shape, dtype, decayed, trainable."""
        ...


def load(state: State, tensors: Mapping[str, np.ndarray]) -> None:
    """Puts arrays into the state, one by one: a mapping that reads them when asked is fine.

    Args:
      tensors: keys `phase/name` of `LOADED_PHASES`, and `COUNTERS`. A phase that is present must be whole;
        one that is absent stays as it is. Values are rounded to the dtype of where they go.

    Raises:
      RuleError: a name is unknown or missing, or a shape differs.
    """
    counters = (int(tensors[key].item()) if key in tensors else None for key in COUNTERS)
    state.count(*counters)
    for phase in LOADED_PHASES:
        given = of_phase(tensors, phase)
        if given:
            check_names(phase, state.tensors(phase), given)
            state.write(phase, _turned_back(state, phase, given))


def _turned_back(
    state: State, phase: str, given: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a phase in this framework's layout and dtypes."""
    turned = _turned(state)
    # Shapes alone: what is replaced must not be kept alive here.
    held = {name: (array.shape, array.dtype) for name, array in state.tensors(phase).items()}
    for name, (shape, dtype) in held.items():
        values = given[name]
        check_shape(phase, name, shape[::-1] if name in turned else shape, values.shape)
        # A copy always: the step writes over the memory of its state, which must not be the caller's.
        yield name, np.array(values.T if name in turned else values, dtype, order="C")


def export(state: State, phases: Iterable[str]) -> Tensors:
    """Copies of the named phases as arrays on the host, keys `phase/name`; waits for the device."""
    turned = _turned(state)
    tensors = {}
    for phase in phases:
        for name, array in state.tensors(phase).items():
            values = np.asarray(array)
            tensors[f"{phase}/{name}"] = np.array(values.T if name in turned else values, order="C")
    return tensors


def _turned(state: State) -> set[str]:
    """Names of the arrays that lie transposed here."""
    return {row.name for row in state.rows if row.layout == "linear"}
