"""Baselines: the step as JAX users write it, to measure ours against.

An nnx model that is split once, an optax chain of `clip_by_global_norm` and `adamw`, and one plain `jax.jit`
over arrays whose shardings tell the partitioner to spread the batch. They obey the precision table, since a
faster step of other numbers would be no comparison: in the bf16 profile the optimizer holds float32 masters,
and the model reads their bfloat16 rounding. What stays stock: optax computes bias corrections in the
parameters' dtype, no update is refused, and it is the partitioner that decides where gradients are summed
over ranks and, in the bf16 profile, that they are summed in bfloat16. Must not: take anything from `step.py`
but its types. Counterpart: `torch_impl/baselines.py`.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_impl.memory import METRICS, Arena, Arrays, describe_parameter
from jax_impl.models import Side
from jax_impl.parallel import BY_RANK, REPLICATED, Ranks
from jax_impl.runtime import compiler_options, matmul_precision
from jax_impl.step import Batch
from spec.edits import Constants, device_table
from spec.errors import RuleError
from spec.mapping.links import jax_table
from spec.run import Problem

_IN_OPTAX = {"m": "mu", "v": "nu"}


class StockState(NamedTuple):
    """What the jitted step takes and gives back."""

    params: Arrays
    optimizer: optax.OptState


class Baseline:
    """State and step of a stock trainer.

    Args:
      name: `jit`.

    Raises:
      RuleError: the model has buffers, which a step over the global batch would give another meaning.
    """

    def __init__(self, name: str, side: Side, problem: Problem, constants: Constants, ranks: Ranks) -> None:
        assert name == "jit", name
        table = problem.parameter_table()
        table = jax_table(table, side.links) if side.links else table
        arena = Arena(side.build(), table, problem.profile, ranks)
        if arena.train_state.buffers:
            raise RuleError(
                "The jit baseline takes models without buffers.",
                f"{len(arena.train_state.buffers)} buffers",
                "take the mode jit",
            )
        self.ranks, self.rows, self.ties, self.links = ranks, arena.rows, arena.ties, side.links
        self.module = arena.module
        self._side, self._problem, self._max_norm = side, problem, constants.max_norm
        self._rates = device_table(problem, constants)[:, 0]
        self._optimizer = optax.chain(
            optax.identity() if constants.max_norm is None else optax.clip_by_global_norm(constants.max_norm),
            optax.adamw(
                self._learning_rate,  # type: ignore[arg-type]
                b1=constants.beta1,
                b2=constants.beta2,
                eps=constants.adam_eps,
                weight_decay=constants.weight_decay,
                mask={row.name: row.decayed for row in self.rows},
            ),
        )
        values = arena.tensors("param")
        params = {name: ranks.place(np.array(array), REPLICATED) for name, array in values.items()}
        init = jax.jit(self._optimizer.init, out_shardings=ranks.sharding(REPLICATED))
        self.train_state = StockState(params, init(params))
        self.seen: Any = {}
        results = (ranks.sharding(REPLICATED), ranks.sharding(BY_RANK))
        options = compiler_options(problem.profile)
        self._jitted = jax.jit(
            lambda state, batch: self._step(state, batch)[:2],
            out_shardings=results,
            donate_argnums=0,
            compiler_options=options,
        )
        self._observed = jax.jit(
            self._step, out_shardings=(*results, ranks.sharding(REPLICATED)), compiler_options=options
        )

    def step(self, state: StockState, batch: Batch) -> tuple[StockState, jax.Array]:
        """One training step: (state, metrics). The state that goes in is used up."""
        return self._jitted(state, batch)

    def observed(self, state: StockState, batch: Batch) -> tuple[StockState, jax.Array, dict[str, Arrays]]:
        """The same as another program, which gives the gradients too and leaves its state as it was."""
        return self._observed(state, batch)

    def _step(self, state: StockState, batch: Batch) -> tuple[StockState, jax.Array, dict[str, Arrays]]:
        params, optimizer = state
        grads, loss_sum, tokens = self._sums(params, batch)
        grads = jax.tree.map(lambda grad: grad / tokens, grads)
        updates, new_optimizer = self._optimizer.update(grads, optimizer, params)
        new_state = StockState(optax.apply_updates(params, updates), new_optimizer)  # type: ignore[arg-type]

        norm, lr = optax.tree.norm(grads), self._learning_rate(_count(optimizer))
        clip = jnp.minimum(1.0, (self._max_norm or jnp.inf) / norm)
        row = jnp.stack([loss_sum / tokens, norm, clip, lr, 0.0, 0.0]).astype(
            self._problem.profile.accumulate
        )
        # The step sees the global batch only, so all its tokens are put down to rank 0.
        metrics = jnp.tile(row, (self.ranks.world_size, 1)).at[0, METRICS.index("tokens")].set(tokens)
        return new_state, metrics, {"grad": grads}

    def _sums(self, params: Arrays, batch: Batch) -> tuple[Arrays, jax.Array, jax.Array]:
        """Gradients, losses and counts of the global batch, in the masters' dtype over its micro-batches."""
        profile = self._problem.profile

        def loss(params: Arrays, part: Batch) -> tuple[jax.Array, jax.Array]:
            read = jax.tree.map(lambda param: param.astype(profile.compute), params)
            loss_sum, count = self._side.loss(self.module(read, {}), part)
            return loss_sum, count.astype(loss_sum.dtype)

        def add(sums: Any, part: Batch) -> tuple[Any, None]:
            with matmul_precision(profile):
                (loss_sum, count), grads = jax.value_and_grad(loss, has_aux=True)(params, part)
            return jax.tree.map(jnp.add, sums, (grads, loss_sum, count)), None

        zero = jnp.zeros((), profile.accumulate)
        sums, _ = jax.lax.scan(
            add, (jax.tree.map(jnp.zeros_like, params), zero, zero), jax.tree.map(self._parts, batch)
        )
        return sums

    def _parts(self, rows: jax.Array) -> jax.Array:
        """Micro-batches first; each holds a share of every rank's rows, so that no row changes its rank."""
        ranks, parts = self.ranks.world_size, self._problem.micro_batches
        split = rows.reshape(ranks, parts, -1, *rows.shape[1:])
        return split.swapaxes(0, 1).reshape(parts, -1, *rows.shape[1:])

    def _learning_rate(self, count: jax.Array) -> jax.Array:
        return jnp.asarray(self._rates)[jnp.minimum(count, len(self._rates) - 1)]

    @property
    def applied(self) -> int:
        """Updates made so far; waits for the device."""
        return int(_count(self.train_state.optimizer))

    @property
    def skipped(self) -> int:
        """None ever is."""
        return 0

    def tensors(self, phase: str) -> Arrays:
        """The arrays of a phase by canonical name, as they lie on this rank alone.

        Raises:
          RuleError: the phase happens inside the optax chain.
        """
        params, optimizer = self.train_state
        if phase in _IN_OPTAX:
            arrays = optax.tree.get(optimizer, _IN_OPTAX[phase])
        elif phase == "param":
            arrays = params
        elif phase in self.seen:
            arrays = self.seen[phase]
        elif phase == "buffer":
            return {}
        else:
            raise RuleError(
                "What is observed can be seen from outside of the optimizer.",
                f"{phase} of a baseline, whose clipping is inside of it",
                "observe grad instead",
            )
        return {row.name: arrays[row.name].addressable_data(0) for row in self.rows}

    def shapes(self, phase: str) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and dtypes of `tensors`, with nothing copied from the device."""
        return {name: jax.ShapeDtypeStruct(a.shape, a.dtype) for name, a in self.tensors(phase).items()}

    def write(self, phase: str, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
        """Puts host arrays, in this framework's layout, in place of those of a phase, by name."""
        params, optimizer = self.train_state
        placed = {name: self.ranks.place(array, REPLICATED) for name, array in arrays}
        if phase == "param":
            self.train_state = StockState(placed, optimizer)
        elif phase in _IN_OPTAX:
            written = optax.tree.set(optimizer, **{_IN_OPTAX[phase]: placed})
            self.train_state = StockState(params, written)

    def count(self, applied: int | None, skipped: int | None) -> None:
        """Sets the counter of updates, if given; none is ever skipped."""
        if applied is None:
            return

        def placed(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
            # Adam's and the schedule's own, each in memory of its own: what is donated is donated once.
            is_count = getattr(path[-1], "name", None) == "count"
            return self.ranks.place(np.array(applied, np.int32), REPLICATED) if is_count else leaf

        params, optimizer = self.train_state
        counted = jax.tree_util.tree_map_with_path(placed, optimizer)
        self.train_state = StockState(params, counted)

    def describe(self) -> list[dict[str, Any]]:
        """What each parameter is, for the manifest; see `describe_parameter`."""
        return [describe_parameter(row, self.train_state.params[row.name].dtype.name) for row in self.rows]


def _count(optimizer: optax.OptState) -> jax.Array:
    return optax.tree.get_all_with_path(optimizer, "count")[0][1]
