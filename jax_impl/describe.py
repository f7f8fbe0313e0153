"""Describes a user's model: its tensors, and its loss and gradients on the first rows, without training it.

Where the torch side described itself before, this side's tensors are matched with that side's; see
`match.py`. What is wrong with the user's file shows here, before anything is timed or compared. Must not:
take a step. Counterpart: `torch_impl/describe.py`.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from jax_impl import runtime, state
from jax_impl.match import Probe, held, match
from jax_impl.memory import Arena
from jax_impl.models.pair import load_side
from jax_impl.own_optimizer import Make, updates
from jax_impl.parallel import Ranks
from spec import codec, record
from spec.data.batches import open_source
from spec.description import DESCRIPTION, INITIAL, MATCH, PROBE_ROWS, VALUES, Described, Description
from spec.job import Job
from spec.pairs import user_code
from spec.pairs.probe import probe_values
from spec.pairs.updates import OPTIMIZER_UPDATES, UPDATES, save_updates
from spec.state import of_phase
from spec.weights import Tensors, load_tensors, save_tensors


def describe(job: Job, ranks: Ranks) -> None:
    """Writes `description.json` and `initial.safetensors` into the pass folder, and where there is a side to
    be matched with `match.json`, and `updates.safetensors` of an optimizer that the side brings.

    Raises:
      RuleError: the user's file cannot be used as it is; file and line are named.
    """
    problem, files, out = job.spec.problem, job.spec.pair, Path(job.out)
    assert files is not None
    runtime.configure(problem, job.spec.execution)
    side = load_side(files, problem)
    user_code.try_logged_lr(side.logged_lr, problem.steps)
    module = side.build()
    arena = Arena(module, (), problem.profile, ranks)
    initial, before = held(arena, "param"), held(arena, "buffer")
    rows = open_source(problem, job.batches).rows(0, 0, min(PROBE_ROWS, problem.global_batch))
    with user_code.told(files.jax, "The JAX side's loss and its gradients can be computed."):
        probe = Probe(side, arena, rows, problem.profile)
        arena.write("param", probe_values(initial).items())
        asked = probe.ask()
    description = Description(
        side="jax",
        parameters=_described(module, arena, initial, None),
        buffers=_described(module, arena, before, held(arena, "buffer")),
        ties=tuple(tuple(group) for group in arena.ties),
        loss_sum=asked.loss_sum if math.isfinite(asked.loss_sum) else None,
        loss_dtype=asked.loss_dtype,
        count=asked.count,
        precision=problem.precision,
    )
    record.write_json(out / DESCRIPTION, codec.to_dict(description))
    if files.described is not None:
        found = match(Path(files.described), files, description, probe)
        arena.links = found.links
        record.write_json(out / MATCH, codec.to_dict(found))
        if side.optimizer is not None and not (found.unmatched_torch or found.unmatched_jax):
            with user_code.told(files.jax, OPTIMIZER_UPDATES):
                _save_updates(out, arena, side.optimizer, load_tensors(Path(files.described) / VALUES))
    if arena.links or files.described is None:
        probe.restore()
        save_tensors(out / INITIAL, state.export(arena, ["param", "buffer"]))


def _save_updates(out: Path, arena: Arena, make: Make, theirs: Tensors) -> None:
    """What the optimizer makes of the torch side's parameters and gradients; frozen ones have none."""
    params, grads = dict(of_phase(theirs, "probe")), dict(of_phase(theirs, "grad"))
    whole = {name: grads.get(name, np.zeros_like(array)) for name, array in params.items()}

    def answer(gradients: Sequence[Tensors]) -> Iterator[Tensors]:
        state.load(arena, {f"param/{name}": array for name, array in params.items()})
        return updates(make, arena, gradients)

    save_updates(out / UPDATES, params, whole, answer)


def _described(
    module: nnx.Module, arena: Arena, values: Tensors, after: Tensors | None
) -> tuple[Described, ...]:
    """Parameters, or buffers where what became of them is given, in the order of the user's attributes."""
    rows = {row.name: row for row in arena.rows}
    ordered = sorted(values, key=lambda name: _place(module, arena.paths[name]))
    return tuple(
        Described(
            name=name,
            path=".".join(map(str, arena.paths[name])),
            shape=values[name].shape,
            dtype=values[name].dtype.name,
            owner=_owner(module, arena.paths[name]),
            trainable=after is None,
            decayed=after is None and rows[name].decayed,
            mean=float(values[name].mean(dtype=np.float64)),
            std=float(values[name].std(dtype=np.float64)),
            changes=after is None or values[name].tobytes() != after[name].tobytes(),
        )
        for name in ordered
    )


def _place(module: Any, path: tuple[Any, ...]) -> tuple[int, ...]:
    """Where a path comes in the order in which attributes were set; flax itself goes by their names."""
    places: list[int] = []
    node = module
    for key in path:
        places.append(_keys(node).index(key) if key in _keys(node) else len(places))
        node = _child(node, key)
    return tuple(places)


def _keys(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node)
    if isinstance(node, list | tuple | nnx.List):
        return list(range(len(node)))
    return list(vars(node)) if hasattr(node, "__dict__") else []


def _child(node: Any, key: Any) -> Any:
    if isinstance(node, dict | list | tuple | nnx.List):
        return node[key]
    return getattr(node, str(key), None)


def _owner(module: nnx.Module, path: tuple[Any, ...]) -> str:
    """The class of the module that holds a variable; for linen, whose modules are gone, the name there."""
    node: Any = module
    for key in path[:-1]:
        node = _child(node, key)
    return str(path[-2]).rstrip("_0123456789") if isinstance(node, dict | jax.Array) else type(node).__name__
