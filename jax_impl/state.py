"""Between the state of a run and arrays under canonical names: `phase/name`, in the layout of the table.

The table's layout is torch's, and this is the one place that transposes, by the links of the side. Where it
has none, names are the table's, and the matrix of an affine layer is (out, in) there and (in, out) in flax;
every other array is the same. Must not: touch files. Counterpart: `torch_impl/state.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import jax
import numpy as np
from flax import nnx

from jax_impl.memory import Arrays
from jax_impl.parallel import Ranks
from spec.mapping.links import Link, table_links, to_jax, to_torch
from spec.params import ParamSpec
from spec.state import COUNTERS, LOADED_PHASES, check_names, check_shape, of_phase
from spec.weights import Tensors


class State(Protocol):
    """What holds a run's state: the arena, or a baseline's model and optimizer."""

    ranks: Ranks
    rows: tuple[ParamSpec, ...]
    ties: list[list[str]]
    links: tuple[Link, ...]
    """How canonical tensors lie in these arrays; empty where the names are the same."""
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

    def shapes(self, phase: str) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and dtypes of `tensors`, with nothing copied from the device."""
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
            links = _links(state, phase, state.shapes(phase))
            names = {link.torch for link in links}
            if state.links and phase == "buffer":
                # The other side's constants are no state of this one.
                given = {name: given[name] for name in given if name in names}
            check_names(phase, names, given)
            state.write(phase, _turned_back(state, phase, links, given))


def _turned_back(
    state: State, phase: str, links: Iterable[Link], given: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a phase in this framework's names, layout and dtypes, one by one."""
    pieces: dict[str, list[Link]] = {}
    for link in links:
        check_shape(phase, link.torch, link.torch_shape, given[link.torch].shape)
        pieces.setdefault(link.jax, []).append(link)
    # Shapes alone: what is replaced must not be kept alive here.
    for name, held in state.shapes(phase).items():
        if name in pieces:
            # A copy always: the step writes over the memory of its state, which must not be the caller's.
            like = {name: np.broadcast_to(np.zeros((), held.dtype), held.shape)}
            yield name, to_jax(pieces[name], given, like)[name]
        else:
            yield name, np.array(state.tensors(phase)[name])


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
