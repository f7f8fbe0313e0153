"""The step, once: what it computes, in the order in which it is computed, before any compiler sees it.

    local gradient sums over micro-batches -> one all-reduce -> one division by the tokens of the global batch
    -> global norm -> clip -> AdamW at the learning rate of the table -> metrics

An update whose loss or gradient norm is not finite is refused on the device: parameters, moments, buffers and
the counter of updates stay as they are, and it is counted. It is a pure function of one rank's view; what is
alike on all ranks and what is this rank's own is said where it changes (`own`, `all_reduce`).

Must not: read a number on the host, or branch on one; `compile.py` relies on it. Counterpart:
`torch_impl/step.py`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jax_impl.memory import Arena, Arrays, TrainState
from jax_impl.models import Side
from jax_impl.optimizer import adamw, clip_coefficient, clip_part, global_norm
from jax_impl.own_optimizer import own_update
from jax_impl.promote import through
from jax_impl.runtime import matmul_precision
from jax_impl.xla.layout import Pieces
from spec.edits import Constants, device_table
from spec.run import Problem

Batch = dict[str, jax.Array]
"""One rank's rows on the device."""

Step = Callable[[Any, Batch], tuple[Any, jax.Array, dict[str, Pieces]]]
"""(state, batch) -> (state, metrics, gradients by phase). Metrics are this rank's row of `METRICS`, (1, 6).
Gradients are for whoever observes, and cost nothing where they are left out of a compiled program."""


class Sums(NamedTuple):
    """What is summed over micro-batches and then over ranks, all of it in the accumulate dtype."""

    grads: Any
    """Of each parameter by name; a few flat arrays once they are to be reduced."""
    loss: jax.Array
    tokens: jax.Array


def make_step(side: Side, problem: Problem, constants: Constants, arena: Arena) -> Step:
    """The uncompiled step of a problem."""
    profile, ranks, layout = problem.profile, arena.ranks, arena.layout
    own = side.optimizer
    update = own_update(own, arena) if own else _adamw_update(arena, problem, constants)

    def part_sums(working: Arrays, buffers: Arrays, part: Batch) -> tuple[Sums, Arrays]:
        """Sums of one micro-batch, each rounded once to the accumulate dtype, and the buffers after it."""

        def loss(working: Arrays) -> tuple[jax.Array, tuple[jax.Array, Arrays]]:
            module = arena.module(working, buffers)
            loss_sum, count = side.loss(module, part)
            if constants.loss_mean:
                loss_sum, count = loss_sum / count, jnp.ones_like(count)
            loss_sum = loss_sum * constants.loss_scale
            if constants.grad_scale != 1:
                # Its value as it was, its derivative scaled.
                scaled = loss_sum * constants.grad_scale
                loss_sum = lax.stop_gradient(loss_sum) + (scaled - lax.stop_gradient(scaled))
            return loss_sum, (count, arena.buffers_of(module))

        with matmul_precision(profile):
            (loss_sum, (count, after)), grads = through(jax.value_and_grad(loss, has_aux=True))(working)
        sums = cast(Sums(grads, loss_sum, count), profile.accumulate)
        if constants.clip_parts:
            parts = clip_part(sums.grads, sums.tokens, constants.max_norm, constants.clip_eps)
            sums = sums._replace(grads=parts)
        return sums, after

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, jax.Array, dict[str, Pieces]]:
        # One rounding a step: every use in every micro-batch reads this copy.
        working = ranks.own(cast(layout.split(state.params), profile.compute))
        own_buffers = jax.tree.map(lambda buffer: buffer[0], state.buffers)
        begin = ranks.own(_no_sums(working, profile.accumulate)), own_buffers
        parts = jax.tree.map(lambda rows: rows.reshape(problem.micro_batches, -1, *rows.shape[1:]), batch)
        own_sums, own_buffers = _over_parts(partial(part_sums, working), begin, parts)
        *alone, together = layout.flatten(own_sums.grads)
        *alone, sums = ranks.all_reduce(*alone, own_sums._replace(grads=together))

        loss = sums.loss / sums.tokens
        grads = tuple(grad / sums.tokens for grad in (*alone, sums.grads))
        norm = global_norm(grads)
        clip = clip_coefficient(norm, constants.max_norm, constants.clip_eps)
        clipped = tuple(grad * clip for grad in grads)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)

        updated, lr = update(state, clipped)
        buffers = jax.tree.map(lambda buffer: buffer[None], own_buffers)
        updated = replace(updated, buffers=buffers, applied=state.applied + 1)
        refused = replace(state, skipped=state.skipped + 1)
        state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), updated, refused)

        metrics = cast((loss, norm, clip, lr, state.skipped, own_sums.tokens), profile.accumulate)
        return state, jnp.stack(metrics)[None], {"grad": grads, "clipped": clipped}

    return step


def _adamw_update(
    arena: Arena, problem: Problem, constants: Constants
) -> Callable[[TrainState, Pieces], tuple[TrainState, jax.Array]]:
    """(state, clipped gradients) -> (state after the update, learning rate of the table)."""
    table = device_table(problem, constants)

    def update(state: TrainState, clipped: Pieces) -> tuple[TrainState, jax.Array]:
        lr, correction1, correction2 = jnp.asarray(table)[jnp.minimum(state.applied, len(table) - 1)]
        pieces = zip(state.params, clipped, state.m, state.v, arena.layout.decayed(), strict=True)
        updated = [
            adamw(param, grad, m, v, lr, correction1, correction2, constants, decayed)
            for param, grad, m, v, decayed in pieces
        ]
        params, m, v = zip(*updated, strict=True)
        return replace(state, params=params, m=m, v=v), lr

    return update


def _over_parts(
    part_sums: Callable[[Arrays, Batch], tuple[Sums, Arrays]], begin: tuple[Sums, Arrays], parts: Batch
) -> tuple[Sums, Arrays]:
    """Sums over a rank's micro-batches in their order, and the buffers after the last.

    Args:
      parts: the micro-batches, contiguous shares of the rank's rows, along the first axis.
    """

    def add(carry: tuple[Sums, Arrays], part: Batch) -> tuple[tuple[Sums, Arrays], None]:
        sums, buffers = carry
        more, buffers = part_sums(buffers, part)
        return (jax.tree.map(jnp.add, sums, more), buffers), None

    return lax.scan(add, begin, parts)[0]


def _no_sums(params: Arrays, dtype: str) -> Sums:
    zero = jnp.zeros((), dtype)
    return Sums({name: jnp.zeros(param.shape, dtype) for name, param in params.items()}, zero, zero)


def cast(tree: Any, dtype: str) -> Any:
    """Every leaf, number or array, as an array of the dtype."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), tree)
