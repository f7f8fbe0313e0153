"""Between the state of a run and arrays under canonical names: `phase/name`, in the layout of the table.

The table's layout is torch's, and this is the one place that transposes, by the links of the side. Where it
has none, names are the table's, and the matrix of an affine layer is (out, in) there and (in, out) in flax;
every other array is the same. Must not: touch files. Counterpart: `torch_impl/state.py`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from flax import nnx

from jax_impl.memory import Arrays
from jax_impl.parallel import Ranks
from spec.errors import RuleError
from spec.mapping.links import Link, table_links, to_jax, to_torch
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
    links: tuple[Link, ...]
    """How canonical tensors lie in these arrays; empty where the names are the same."""
    train_state: Any
    """The tree of arrays that a step takes and gives back."""
    seen: dict[str, Arrays]
    """Gradients of the last step that was observed, by phase."""

    @property
    def applied(self) -> int:
        """Updates made so far; waits for the device."""
        ...

    def module(self, params: Arrays, buffers: Arrays) -> nnx.Module:
        """The module with these arrays in it, inside a trace."""
        ...

    def tensors(self, phase: str) -> Arrays:
        """The arrays of a phase by canonical name, in this framework's layout."""
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
    held = state.tensors(phase)
    links = _links(state, phase, held)
    shapes = {link.torch: link.torch_shape for link in links}
    if state.links and phase == "buffer":
        # The other side's constants are no state of this one.
        given = {name: array for name, array in given.items() if name in shapes}
    misfits = sorted(shapes.keys() ^ given.keys())
    if misfits:
        name = misfits[0]
        raise RuleError(
            "A state has the tensors of the model, no more and no fewer.",
            f"{phase}/{name} is {'missing' if name in shapes else 'not in the model'} ({len(misfits)} such)",
            "was it written for another model?",
        )
    for name, shape in shapes.items():
        if given[name].shape != shape:
            raise RuleError(
                "A tensor of a state has the shape of the model's.",
                f"{phase}/{name} is {given[name].shape}, in the model {shape}",
                "was it written for other sizes?",
            )
    # Copies: the step writes over the memory of its state, which must not be the caller's.
    linked = {link.jax for link in links}
    like = {name: np.asarray(array) for name, array in held.items() if name in linked}
    moved = to_jax(links, given, like)
    state.write(phase, {name: moved[name] if name in moved else np.array(held[name]) for name in held})


def export(state: State, phases: Iterable[str]) -> Tensors:
    """Copies of the named phases as arrays on the host, keys `phase/name`; waits for the device."""
    tensors = {}
    for phase in phases:
        held = {name: np.asarray(array) for name, array in state.tensors(phase).items()}
        found = to_torch(_links(state, phase, held), held)
        tensors |= {f"{phase}/{name}": array for name, array in found.items()}
    return tensors


def describe(state: State) -> list[dict[str, Any]]:
    """What each parameter is, under canonical names: name, shape, dtype, decayed, trainable."""
    rows = {row["name"]: row for row in state.describe()}
    found = {
        link.torch: rows[link.jax] | {"name": link.torch, "shape": list(link.torch_shape)}
        for link in _links(state, "param", rows)
    }
    return list(found.values())


def _links(state: State, phase: str, held: Mapping[str, Any]) -> tuple[Link, ...]:
    """The links of what is held of a phase."""
    if state.links:
        return tuple(link for link in state.links if link.jax in held)
    if phase == "buffer":
        shapes = {name: tuple(array.shape) for name, array in held.items()}
        return tuple(Link(torch=n, jax=n, torch_shape=s, jax_shape=s) for n, s in shapes.items())
    return table_links(state.rows)
