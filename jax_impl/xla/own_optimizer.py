"""A user's own optimizer in the step: any `optax.GradientTransformation`, through a general path.

    trainer = Trainer(problem, execution, "jit", side=Side(build, loss, optax.lion(1e-4)))

Gradients are reduced, divided by the tokens, and clipped as `problem.optimizer.max_norm` says (None for no
clipping), and an update that is not finite is refused, as always; then the transformation decides. Its
learning rate is its own: `problem.schedule` and the rest of `problem.optimizer` say nothing, and the metric
`lr` is NaN. Its state is a tree of arrays by parameter, so that a launch costs more than with the built-in
AdamW, whose state is flat. Must not: ask a transformation what it is.
"""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_impl.memory import Arena, TrainState
from jax_impl.parallel import REPLICATED
from spec.errors import RuleError


def adopt(arena: Arena, optimizer: optax.GradientTransformation) -> None:
    """Puts the optimizer's own state in place of the moments.

    Raises:
      RuleError: it holds something that is no array, such as a Python number.
    """
    params = {name: np.array(array) for name, array in arena.tensors("param").items()}
    made = jax.jit(optimizer.init)(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(made):
        if not isinstance(leaf, jax.Array) or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raise RuleError(
                "The state of an optimizer is numbers in arrays.",
                f"{jax.tree_util.keystr(path)} is {type(leaf).__name__} {getattr(leaf, 'dtype', '')}",
                "take a transformation without keys or Python objects in its state",
            )
    # A copy of its own each: what is given away is given away once.
    placed = jax.tree.map(lambda leaf: arena.ranks.place(np.array(leaf), REPLICATED), made)
    arena.train_state = replace(arena.train_state, m=None, v=None, optimizer=placed)


def own_update(
    arena: Arena, optimizer: optax.GradientTransformation
) -> Callable[[TrainState, jax.Array], tuple[TrainState, jax.Array]]:
    """(state, clipped gradients, flat) -> (state after the update, learning rate), inside a trace."""
    layout = arena.layout

    def update(state: TrainState, clipped: jax.Array) -> tuple[TrainState, jax.Array]:
        params = layout.split(state.params)
        grads = layout.split(clipped.astype(state.params.dtype))
        updates, after = optimizer.update(grads, state.optimizer, params)
        new = optax.apply_updates(params, updates)
        # Transformations compute in float32 here and there; what a step gives back is what it took.
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state.optimizer)
        return replace(state, params=layout.flatten(new), optimizer=after), jnp.full((), jnp.nan)  # type: ignore[arg-type]

    return update
