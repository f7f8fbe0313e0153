"""Arena: the state of a run, a few flat arrays that every step consumes and gives back in place.

XLA owns the memory. What can be said about it is said and proven here: which parameter has which name and
lies where, that a step gives the state back as it took it, and that it does so in place (donation). Must not:
compute anything of the step, or transpose. Counterpart: `torch_impl/memory.py`, where the same flat arrays
stay at fixed addresses.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jax_impl.parallel import BY_RANK, REPLICATED, Ranks
from jax_impl.xla import hlo
from jax_impl.xla.first_steps import leaf_name
from jax_impl.xla.layout import Layout, Pieces
from spec.description import DRAWS
from spec.errors import RuleError
from spec.mapping.links import Link
from spec.params import ParamSpec
from spec.precision import Profile

METRICS = ("loss", "grad_norm", "clip", "lr", "skipped", "tokens")
"""What a step returns as its metrics, in this order; `tokens` counts this rank's rows, all else is global."""

Arrays = dict[str, jax.Array]
"""Arrays by canonical name, in this framework's layout."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """All that one step leaves for the next."""

    params: Pieces
    """Master weights as a few flat arrays (N,), mostly one; `Arena.layout` says what lies where."""
    m: Pieces
    v: Pieces
    """First and second moments, flat too; zero where the optimizer is the user's."""
    buffers: Arrays
    """The model's own running values; the first axis is that of ranks, since each keeps its own."""
    applied: jax.Array
    """Updates made, int32: the row of the step table that is next."""
    skipped: jax.Array
    """Updates refused because a number was not finite, int32."""
    own: Any = None
    """The state of an optimizer of the user's own; see `own_optimizer.py`."""


class Arena:
    """The state of a run, and the module that it belongs to, which is split here, once.

    Args:
      module: its `nnx.Param` variables are trained and keep their values, except abstract ones, which have
        none; all other arrays in it are buffers. What is shared stays shared and counts once.
      table: rows of known parameters; one without a row decays when it has two or more dimensions.
      profile: the dtypes of the state.
      ranks: where all of it lies; every rank has the same weights.
      arrays: how parameters lie together; see `Layout`.
    """

    def __init__(
        self,
        module: nnx.Module,
        table: Iterable[ParamSpec],
        profile: Profile,
        ranks: Ranks,
        arrays: str = "one",
    ) -> None:
        self.ranks, self.ties = ranks, tied_names(module)
        self._graph, params, buffers = nnx.split(module, nnx.Param, ...)
        self._params, self._buffers = _by_name(params), _by_name(buffers)
        self.paths = {name: path for name, (path, _) in (self._params | self._buffers).items()}
        """Where each variable is in the module."""
        self.links: tuple[Link, ...] = ()
        """How canonical tensors lie in these; empty where the names are the same."""
        self.rows = parameter_rows(self._params, table)
        """One for each parameter; see `parameter_rows`."""
        self.seen: Any = {}
        """Gradients of the last step that was observed, flat, by phase."""
        weights = {row.name: _values(self._params[row.name][1], profile.master) for row in self.rows}
        self.layout = Layout(self.rows, {name: array.shape for name, array in weights.items()}, arrays)
        self.train_state = TrainState(
            params=self._replicated(self.layout.flatten(weights)),
            # Memory of its own each: on a CPU an array may lie in the host array that it came from.
            m=self._zeros(profile.moments),
            v=self._zeros(profile.moments),
            buffers=self._place(_buffer_values(self._buffers, profile.master)),
            applied=self._counter(0),
            skipped=self._counter(0),
        )

    @property
    def applied(self) -> int:
        """Updates made so far; waits for the device."""
        return int(self.train_state.applied)

    @property
    def skipped(self) -> int:
        """Updates refused so far; waits for the device."""
        return int(self.train_state.skipped)

    def module(self, params: Arrays, buffers: Arrays) -> nnx.Module:
        """The module with these arrays in it, inside a trace."""
        paths = [(self._params[name][0], array) for name, array in params.items()]
        others = [(self._buffers[name][0], array) for name, array in buffers.items()]
        return nnx.merge(self._graph, nnx.from_flat_state(paths), nnx.from_flat_state(others))

    def buffers_of(self, module: nnx.Module) -> Arrays:
        """What the module's buffers have become, inside a trace."""
        _, _, buffers = nnx.split(module, nnx.Param, ...)
        return {name: _array(leaf) for name, (_, leaf) in _by_name(buffers).items()}

    def tensors(self, phase: str) -> dict[str, Any]:
        """The arrays of a phase by canonical name, as they lie on this rank alone; to be read, not kept."""
        if phase == "buffer":
            buffers = self.train_state.buffers
            return {name: array.addressable_data(0)[0] for name, array in buffers.items()}
        pieces = tuple(np.asarray(flat_N.addressable_data(0)) for flat_N in self._pieces(phase))
        arrays = self.layout.split(pieces)
        return {row.name: arrays[row.name] for row in self.rows}

    def shapes(self, phase: str) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and dtypes of `tensors`, with nothing copied from the device."""
        if phase == "buffer":
            buffers = self.train_state.buffers
            return {name: jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for name, a in buffers.items()}
        dtype, shapes = self._pieces(phase)[0].dtype, self.layout.shapes
        return {row.name: jax.ShapeDtypeStruct(shapes[row.name], dtype) for row in self.rows}

    def _pieces(self, phase: str) -> Pieces:
        state = self.train_state
        return {"param": state.params, "m": state.m, "v": state.v, **self.seen}[phase]

    def write(self, phase: str, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
        """Puts host arrays, in this framework's layout, in place of those of a phase, one by one, by name."""
        state = self.train_state
        if phase == "buffer":
            for name, array in arrays:
                # The one before is let go of here, so that no second copy of the state is ever held.
                state.buffers[name] = self.ranks.place(array[None], BY_RANK)
            return
        field = "params" if phase == "param" else phase
        pieces = self._replicated(self.layout.gather(arrays, getattr(state, field)[0].dtype))
        self.train_state = replace(state, **cast(Any, {field: pieces}))

    def count(self, applied: int | None, skipped: int | None) -> None:
        """Sets the counters that are given."""
        if applied is not None:
            self.train_state = replace(self.train_state, applied=self._counter(applied))
        if skipped is not None:
            self.train_state = replace(self.train_state, skipped=self._counter(skipped))

    def describe(self) -> list[dict[str, Any]]:
        """What each parameter is, for the manifest; see `describe_parameter`."""
        return [describe_parameter(row, self.train_state.params[0].dtype.name) for row in self.rows]

    def _zeros(self, dtype: str) -> Pieces:
        return self._replicated(tuple(np.zeros(size, dtype) for size in self.layout.sizes))

    def _replicated(self, pieces: Pieces) -> Pieces:
        return tuple(self.ranks.place(array, REPLICATED) for array in pieces)

    def _place(self, arrays: dict[str, np.ndarray]) -> Arrays:
        return {name: self.ranks.place(array, BY_RANK) for name, array in arrays.items()}

    def _counter(self, number: int) -> jax.Array:
        return self.ranks.place(np.array(number, np.int32), REPLICATED)


def abstract(tree: Any) -> Any:
    """Shapes, dtypes and shardings of a tree of arrays: what a program is compiled from."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), tree)


def layout(tree: Any) -> Any:
    """Where each array of a tree lies: a tree of `REPLICATED` and `BY_RANK`."""
    return jax.tree.map(lambda a: a.sharding.spec, tree)


def describe_parameter(row: ParamSpec, stored: str) -> dict[str, Any]:
    """One parameter for the manifest: name, shape, dtype (as stored), decayed, trainable."""
    return {
        "name": row.name,
        "shape": list(row.shape),
        "dtype": stored,
        "decayed": row.decayed,
        "trainable": True,
    }


def tied_names(module: nnx.Module) -> list[list[str]]:
    """Groups of names that stand for one parameter, the canonical name first."""
    paths: dict[int, list[tuple[Any, ...]]] = {}
    for path, part in nnx.iter_modules(module):
        for attribute, value in vars(part).items():
            if isinstance(value, nnx.Param):
                paths.setdefault(id(value), []).append((*path, attribute))
    # flax walks a module by the names of its attributes, and calls a variable by the first that it meets.
    return [[_canonical(path) for path in sorted(group)] for group in paths.values() if len(group) > 1]


def prove_in_place(program: jax.stages.Compiled, state: TrainState) -> int:
    """Checks that a program updates every leaf of the state in place; returns their bytes on one device.

    Args:
      program: takes the state first and gives it back first, none of its arguments dropped.
      state: the state or its `abstract`.

    Raises:
      RuleError: a leaf is copied, or comes back with another shape, dtype or sharding; it is named.
    """
    text, memory = program.as_text(), program.memory_analysis()
    assert text is not None and memory is not None
    leaves, outputs = jax.tree_util.tree_leaves_with_path(state), jax.tree.leaves(program.out_info[0])
    shardings = jax.tree.leaves(program.output_shardings[0])
    for (path, before), after, sharding in zip(leaves, outputs, shardings, strict=True):
        alike = (before.shape, before.dtype) == (after.shape, after.dtype)
        if not (alike and before.sharding.is_equivalent_to(sharding, before.ndim)):
            raise RuleError(
                "A step gives its state back as it took it.",
                f"{leaf_name(path)}: in {before.dtype}{before.shape} {before.sharding.spec}, "
                f"out {after.dtype}{after.shape} {sharding.spec}",
                "look for a value of another dtype in the update",
            )
    in_place = hlo.aliased_parameters(text)
    copied = [leaf_name(path) for number, (path, _) in enumerate(leaves) if number not in in_place]
    alias_bytes = memory.alias_size_in_bytes
    state_bytes = sum(_local_bytes(leaf) for _, leaf in leaves)
    if copied or alias_bytes != state_bytes:
        raise RuleError(
            "A step updates every leaf of its state in place.",
            f"{alias_bytes} of {state_bytes} bytes; copied: {', '.join(copied) or 'no leaf as a whole'}",
            "compile it with the state donated",
        )
    return alias_bytes


def _local_bytes(leaf: Any) -> int:
    return math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize


def _canonical(path: Iterable[Any]) -> str:
    """`blocks.0.attn.qkv.weight` from ('blocks', 0, 'attn', 'qkv', 'kernel')."""
    *parents, leaf = (str(part) for part in path)
    return ".".join(
        [*parents, {"kernel": "weight", "embedding": "weight", "scale": "weight"}.get(leaf, leaf)]
    )


def _by_name(state: nnx.State) -> dict[str, tuple[tuple[Any, ...], Any]]:
    """(path, variable or array) of each leaf by canonical name.

    Raises:
      RuleError: two leaves would have one name.
    """
    named: dict[str, tuple[tuple[Any, ...], Any]] = {}
    for path, leaf in nnx.to_flat_state(state):
        name = _canonical(path)
        if name in named:
            raise RuleError(
                "Every variable of a module has a canonical name of its own.",
                f"{named[name][0]} and {path} are both {name}",
                "kernel, embedding and scale are called weight; name one of them otherwise",
            )
        named[name] = (path, leaf)
    return named


def _array(leaf: Any) -> Any:
    """The array, or its abstract form, that a leaf holds."""
    return leaf.get_value() if isinstance(leaf, nnx.Variable) else leaf


def _values(leaf: Any, dtype: str) -> np.ndarray:
    """The values of a leaf on the host, in a copy of their own; zeros where it is abstract."""
    array = _array(leaf)
    if isinstance(array, jax.ShapeDtypeStruct):
        return np.zeros(array.shape, dtype)
    return np.array(array, dtype)


def _buffer_values(buffers: dict[str, tuple[tuple[Any, ...], Any]], dtype: str) -> dict[str, np.ndarray]:
    """The first values of the buffers, with the axis of ranks; those of floating-point numbers in `dtype`."""
    values = {}
    for name, (_, leaf) in buffers.items():
        if isinstance(leaf, nnx.RngState):
            raise RuleError(
                DRAWS, f"{name} is the state of a generator", "build it without dropout, with p = 0"
            )
        if isinstance(_array(leaf), jax.ShapeDtypeStruct):
            raise RuleError(
                "The buffers of a module are arrays with values.",
                f"{name} is abstract",
                "build it with values where it has running statistics",
            )
        floating = jnp.issubdtype(_array(leaf).dtype, jnp.floating)
        values[name] = _values(leaf, dtype if floating else _array(leaf).dtype)[None]
    return values


def parameter_rows(
    params: dict[str, tuple[tuple[Any, ...], Any]], table: Iterable[ParamSpec]
) -> tuple[ParamSpec, ...]:
    """The row of each parameter of the module, in the table's order; made up where none of the table fits.

    Args:
      params: (path, variable) of each parameter by canonical name.
    """
    known, rows = {row.name: row for row in table}, {}
    for name, (path, variable) in params.items():
        shape, dtype = tuple(_array(variable).shape), _array(variable).dtype
        if not jnp.issubdtype(dtype, jnp.floating):
            raise RuleError("Parameters are floating-point numbers.", f"{name} is {dtype}")
        linear = path[-1] == "kernel" and len(shape) == 2
        given = ParamSpec(
            name=name,
            shape=shape[::-1] if linear else shape,
            init="given",
            decayed=len(shape) >= 2,
            layout="linear" if linear else "vector",
        )
        row = known.get(name)
        if row is not None and row.shape != given.shape:
            # Laid out otherwise, it is still the table that says whether it decays.
            row = replace(given, decayed=row.decayed) if row.size == given.size else None
        rows[name] = row or given
    if not rows:
        raise RuleError("A model has parameters (nnx.Param).", "it has none")
    # The module's own order is that of its attributes' names.
    return tuple(rows[name] for name in dict.fromkeys([*known, *rows]) if name in rows)
