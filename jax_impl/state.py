"""Between the state of a run and arrays under canonical names: `phase/name`, in the layout of the table.

The table's layout is torch's, and this is the one place that transposes: the matrix of an affine layer is
(out, in) there and (in, out) in flax; every other array is the same. Must not: touch files. Counterpart:
`torch_impl/state.py`.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from flax import nnx

from jax_impl.memory import Arrays
from jax_impl.parallel import Ranks
from spec.errors import RuleError
from spec.params import ParamSpec
from spec.weights import Tensors

LOADED_PHASES = ("param", "m", "v", "buffer")
"""The phases that make up a state; the others are only looked at."""

COUNTERS = ("meta/applied", "meta/skipped")


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

    def module(self, params: Arrays, buffers: Arrays) -> nnx.Module:
        """The module with these arrays in it, inside a trace."""
        ...

    def tensors(self, phase: str) -> dict[str, Any]:
        """The arrays of a phase by canonical name, in this framework's layout; to be read, not kept."""
        ...

    def write(self, phase: str, arrays: dict[str, np.ndarray]) -> None:
        """Puts host arrays in place of a whole phase of the state."""
        ...

    def count(self, applied: int | None, skipped: int | None) -> None:
        """Sets the counters that are given."""
        ...

    def describe(self) -> list[dict[str, Any]]:
        """What each parameter is: name, shape, dtype, decayed, trainable."""
        ...


def load(state: State, tensors: Tensors) -> None:
    """Puts arrays into the state.

    Args:
      tensors: keys `phase/name` of `LOADED_PHASES`, and `COUNTERS`. A phase that is present must be whole;
        one that is absent stays as it is. Values are rounded to the dtype of where they go.

    Raises:
      RuleError: a name is unknown or missing, or a shape differs.
    """
    counters = (int(tensors[key].item()) if key in tensors else None for key in COUNTERS)
    state.count(*counters)
    for phase in LOADED_PHASES:
        given = {k.removeprefix(f"{phase}/"): a for k, a in tensors.items() if k.startswith(f"{phase}/")}
        if given:
            _load_phase(state, phase, given)


def _load_phase(state: State, phase: str, given: Tensors) -> None:
    """Writes one phase whole."""
    held, turned = state.tensors(phase), _turned(state)
    misfits = sorted(held.keys() ^ given.keys())
    if misfits:
        name = misfits[0]
        raise RuleError(
            "A state has the tensors of the model, no more and no fewer.",
            f"{phase}/{name} is {'missing' if name in held else 'not in the model'} ({len(misfits)} such)",
            "was it written for another model?",
        )
    arrays = {}
    for name, array in held.items():
        shape = array.shape[::-1] if name in turned else array.shape
        if given[name].shape != shape:
            raise RuleError(
                "A tensor of a state has the shape of the model's.",
                f"{phase}/{name} is {given[name].shape}, in the model {shape}",
                "was it written for other sizes?",
            )
        # A copy always: the step writes over the memory of its state, which must not be the caller's.
        values = given[name].T if name in turned else given[name]
        arrays[name] = np.array(values, array.dtype, order="C")
    state.write(phase, arrays)


def export(state: State, phases: Iterable[str]) -> Tensors:
    """Copies of the named phases as arrays on the host, keys `phase/name`; waits for the device."""
    turned = _turned(state)
    tensors = {}
    for phase in phases:
        for name, array in state.tensors(phase).items():
            values = np.array(array)
            tensors[f"{phase}/{name}"] = np.ascontiguousarray(values.T) if name in turned else values
    return tensors


def _turned(state: State) -> set[str]:
    """Names of the arrays that lie transposed here."""
    return {row.name for row in state.rows if row.layout == "linear"}
