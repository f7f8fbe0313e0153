"""A user's own optax transformation in the place of AdamW, on parameters by name.

    trainer = Trainer(problem, execution, "jit", side=Side(build, loss, lambda: optax.lion(1e-4)))

Everything around it is the step's own: the sums, the division, the clipping, the guard. Its learning rate is
its own too, so the metric `lr` is NaN. Its state travels in the state of the run, so that an update that is
refused leaves it as it was; it is a tree of arrays by parameter, so that a launch costs more than with AdamW,
whose state is flat. Must not: ask a transformation what it is. Counterpart: `torch_impl/own_optimizer.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_impl.memory import Arena, Arrays, TrainState
from jax_impl.parallel import REPLICATED
from jax_impl.state import export, load
from jax_impl.xla.layout import Pieces
from spec.errors import RuleError
from spec.state import of_phase
from spec.weights import Tensors

Make = Callable[[], optax.GradientTransformation]
Update = Callable[[TrainState, Pieces], tuple[TrainState, jax.Array]]
"""(state, clipped gradients, flat) -> (state after the update, learning rate), inside a trace."""


def own_update(make: Make, arena: Arena) -> Update:
    """The update by the transformation that `make` returns; the moments of the arena stay zero.

    Raises:
      RuleError: it returns something else.
    """
    optimizer, layout = _made(make), arena.layout

    def update(state: TrainState, clipped: Pieces) -> tuple[TrainState, jax.Array]:
        params = layout.split(state.params)
        grads = layout.split(
            tuple(grad.astype(param.dtype) for grad, param in zip(clipped, state.params, strict=True))
        )
        updates, after = optimizer.update(grads, state.own, params)
        new = optax.apply_updates(params, updates)
        # Transformations compute in float32 here and there; what a step gives back is what it took.
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state.own)
        return replace(state, params=layout.flatten(new), own=after), jnp.full((), jnp.nan)  # type: ignore[arg-type]

    return update


def updates(make: Make, arena: Arena, gradients: Sequence[Tensors]) -> Iterator[Tensors]:
    """The parameters after each update from given gradients, `NAME` -> array in the table's layout, by a new
    transformation that begins at the arena's parameters; the arena's parameters and first moments follow it.
    """
    optimizer = _made(make)
    params = {name: jnp.array(array) for name, array in arena.tensors("param").items()}
    own = _first(optimizer, params)

    @jax.jit
    def update(grads: Arrays, own: Any, params: Arrays) -> tuple[Arrays, Any]:
        changes, after = optimizer.update(grads, own, params)
        return optax.apply_updates(params, changes), after  # type: ignore[return-value]

    for grads in gradients:
        load(arena, {f"m/{name}": array for name, array in grads.items()})
        params, own = update(arena.tensors("m"), own, params)
        arena.write("param", ((name, np.asarray(array)) for name, array in params.items()))
        yield dict(of_phase(export(arena, ["param"]), "param"))


def begin(make: Make, arena: Arena) -> None:
    """Puts the optimizer's first state into the arena, made from the parameters as they are now.

    Raises:
      RuleError: it holds something that is no array, such as a Python number.
    """
    params = {name: np.array(array) for name, array in arena.tensors("param").items()}
    # A copy of its own each: what is given away is given away once.
    placed = jax.tree.map(
        lambda leaf: arena.ranks.place(np.array(leaf), REPLICATED), _first(_made(make), params)
    )
    arena.train_state = replace(arena.train_state, own=placed)


def _first(optimizer: optax.GradientTransformation, params: Any) -> Any:
    """Its first state.

    Raises:
      RuleError: it holds something that is no array, such as a Python number.
    """
    first = jax.jit(optimizer.init)(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(first):
        if not isinstance(leaf, jax.Array) or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raise RuleError(
                "The state of an optimizer is numbers in arrays.",
                f"{jax.tree_util.keystr(path)} is {type(leaf).__name__} {getattr(leaf, 'dtype', '')}",
                "take a transformation without keys or Python objects in its state",
            )
    return first


def _made(make: Make) -> optax.GradientTransformation:
    optimizer = make()
    if not (callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None))):
        raise RuleError(
            "optimizer() returns an optax.GradientTransformation.",
            f"it returned {type(optimizer).__name__}",
        )
    return optimizer
