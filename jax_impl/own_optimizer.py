"""A user's own optax transformation in the place of AdamW, on parameters by name.

Everything around it is the step's own: the sums, the division, the clipping, the guard. Its state travels in
the state of the run, so that an update that is refused leaves it as it was. Counterpart:
`torch_impl/own_optimizer.py`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import optax

from jax_impl.memory import Arena, Arrays
from jax_impl.parallel import REPLICATED
from spec.errors import RuleError

Make = Callable[[], optax.GradientTransformation]
Update = Callable[[Arrays, Any, Arrays], tuple[Arrays, Any]]
"""(clipped gradients, optimizer's state, parameters) -> (next parameters, next state)."""


def own_update(make: Make, arena: Arena) -> Update:
    """The update by the transformation that `make` returns; its first state is put into the arena."""
    optimizer = make()
    if not (callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None))):
        raise RuleError(
            "optimizer() returns an optax.GradientTransformation.",
            f"it returned {type(optimizer).__name__}",
        )
    init = jax.jit(optimizer.init, out_shardings=arena.ranks.sharding(REPLICATED))
    arena.train_state = replace(arena.train_state, own=init(arena.train_state.params))

    def update(grads: Arrays, own: Any, params: Arrays) -> tuple[Arrays, Any]:
        updates, own = optimizer.update(grads, own, params)
        return optax.apply_updates(params, updates), own  # type: ignore[return-value]

    return update
