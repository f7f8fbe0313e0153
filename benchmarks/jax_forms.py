"""Forms that one JAX training step can be called in, for `benchmarks/jax_step.py`: same step, other plumbing.

Each form stages rows, launches, and reads metrics one call late; what differs is said in its docstring. The
step itself is `jax_impl.step.make_step`'s, unchanged. Must not: time anything.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import jax
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec, SingleDeviceSharding

from jax_impl.memory import Arena, TrainState, layout
from jax_impl.parallel import BY_RANK, REPLICATED
from jax_impl.runtime import compiler_options
from jax_impl.step import make_step
from jax_impl.trainer import Trainer
from jax_impl.xla.packing import PackedStage
from spec.data.batches import Batch
from spec.edits import constants

RING = 16
"""Rows of metrics that the form `metrics_ring` keeps on the device."""


class Shipped:
    """`Trainer.step` and `Trainer.metrics`, as a user calls them."""

    steps_per_call = 1

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def stage(self, rows: Sequence[Batch]) -> Any:
        """The rows of one call on the device."""
        return self.trainer.stage(rows[0])

    def launch(self, batch: Any) -> None:
        """One call."""
        self.trainer.launch(batch)

    def read(self) -> None:
        """Metrics of the call before the last."""
        self.trainer.metrics(self.trainer.num_steps - 2)

    def arrays(self) -> Any:
        """What the last call leaves."""
        return self.trainer.state.train_state

    def loss(self) -> float:
        """Loss of the last step; waits for it."""
        return self.trainer.metrics().loss

    def program_text(self, rows: Sequence[Batch]) -> str | None:
        """The optimized program, which is compiled by now."""
        compiled = self.trainer.compiled
        return compiled.step.as_text() if compiled and hasattr(compiled.step, "as_text") else None


class Jitted(Shipped):
    """The jitted function itself is called, and not the `Compiled` of it."""

    donate: tuple[int, ...] = (0,)
    batch_spec = BY_RANK
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        arena, problem = trainer.state, trainer.problem
        assert isinstance(arena, Arena)
        chosen = constants(problem)
        self._fields_step = make_step(trainer.side, problem, chosen, arena)
        assert isinstance(trainer.stage, PackedStage)
        self.packing = trainer.stage.packing
        self._step = lambda state, batch: self._fields_step(state, self.packing.unpack(batch))
        self.state = self.begin(arena.train_state)
        inputs = (self.layout(self.state), self.batch_spec)
        outputs = self.outputs(inputs)
        ranks = trainer.ranks
        self.program = jax.jit(
            ranks.spread(self.train_step, inputs, outputs),
            **self.shardings(inputs, outputs),
            donate_argnums=self.donate,
            keep_unused=True,
            compiler_options=compiler_options(problem.profile) | self.options,
        )
        self.waiting: deque[jax.Array] = deque(maxlen=2)

    def begin(self, state: TrainState) -> Any:
        """The state that the program is given first."""
        return state

    def layout(self, state: Any) -> Any:
        """Where its leaves lie."""
        return layout(state)

    def outputs(self, inputs: Any) -> Any:
        """Where the results lie."""
        return inputs[0], BY_RANK

    def shardings(self, inputs: Any, outputs: Any) -> dict[str, Any]:
        """What jit is told of them."""
        sharding = self.trainer.ranks.sharding
        return {
            "in_shardings": jax.tree.map(sharding, inputs),
            "out_shardings": jax.tree.map(sharding, outputs),
        }

    def train_step(self, state: Any, batch: Any) -> Any:
        """What is traced."""
        return self._step(state, batch)[:2]

    def launch(self, batch: Any) -> None:
        self.state, metrics = self.program(self.state, batch)
        metrics.copy_to_host_async()
        self.waiting.append(metrics)

    def read(self) -> None:
        np.asarray(self.waiting[0].addressable_data(0))

    def arrays(self) -> Any:
        return self.state

    def loss(self) -> float:
        return float(np.asarray(self.waiting[-1].addressable_data(0)).reshape(-1, 6)[-1, 0])

    def program_text(self, rows: Sequence[Batch]) -> str | None:
        return self.program.lower(self.state, self.stage(rows)).compile().as_text()


class Unsharded(Jitted):
    """As `jit_call`, but no shardings are named and arrays lie on the device without a mesh."""

    def begin(self, state: TrainState) -> Any:
        self.device = SingleDeviceSharding(self.trainer.ranks.device)
        return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf), self.device), state)

    def layout(self, state: Any) -> Any:
        return None

    def shardings(self, inputs: Any, outputs: Any) -> dict[str, Any]:
        assert self.trainer.ranks.world_size == 1, "one device alone"
        return {}

    def stage(self, rows: Sequence[Batch]) -> Any:
        return jax.device_put(self.packing.pack(rows[0]), self.device)


class SameBatch(Jitted):
    """Every call is given the same batch object: no copy, the same address."""

    staged: Any = None

    def stage(self, rows: Sequence[Batch]) -> Any:
        self.staged = self.staged or super().stage(rows)
        return self.staged


class NoReadback(Jitted):
    """Metrics are neither copied to the host nor read."""

    def launch(self, batch: Any) -> None:
        self.state, metrics = self.program(self.state, batch)
        self.waiting.append(metrics)

    def read(self) -> None:
        pass


class Lean(SameBatch, NoReadback):
    """The same batch always, and nothing is read: what plain experiments measure."""


class LateCopy(Jitted):
    """Metrics are fetched when they are read, without an asynchronous copy before."""

    def launch(self, batch: Any) -> None:
        self.state, metrics = self.program(self.state, batch)
        self.waiting.append(metrics)


class DonatedBatch(Jitted):
    """The batch is donated, and comes back in the same memory to be given again."""

    donate = (0, 1)
    kept: Any = None

    def stage(self, rows: Sequence[Batch]) -> Any:
        self.kept = self.kept or super().stage(rows)
        return self.kept

    def outputs(self, inputs: Any) -> Any:
        return inputs[0], BY_RANK, self.batch_spec

    def train_step(self, state: Any, batch: Any) -> Any:
        return *self._step(state, batch)[:2], batch

    def launch(self, batch: Any) -> None:
        self.state, metrics, self.kept = self.program(self.state, self.kept)
        metrics.copy_to_host_async()
        self.waiting.append(metrics)


class MetricsRing(Jitted):
    """Metrics are written into a donated ring inside the state, and never read: no result is new memory."""

    def begin(self, state: TrainState) -> Any:
        ring = np.zeros((1, RING, 6), self.trainer.problem.profile.accumulate)
        return state, self.trainer.ranks.place(ring, BY_RANK)

    def outputs(self, inputs: Any) -> Any:
        return (inputs[0],)

    def train_step(self, state: Any, batch: Any) -> Any:
        own, ring = state
        row = own.applied % RING
        own, metrics, _ = self._step(own, batch)
        return ((own, lax.dynamic_update_slice(ring, metrics[None], (0, row, 0))),)

    def launch(self, batch: Any) -> None:
        (self.state,) = self.program(self.state, batch)

    def read(self) -> None:
        pass

    def loss(self) -> float:
        own, ring = self.state
        return float(np.asarray(ring.addressable_data(0))[0, (int(own.applied) - 1) % RING, 0])


class RingSameBatch(MetricsRing, SameBatch):
    """The ring, and the same batch always: every address is the same in every call."""


class Leaves(Jitted):
    """Parameters, m and v are one array a parameter each, as a tree of them would be."""

    def begin(self, state: TrainState) -> Any:
        self.flat_layout = self.trainer.state.layout  # type: ignore[attr-defined]
        place = self.trainer.ranks.place

        def leaves(pieces: tuple[jax.Array, ...]) -> dict[str, jax.Array]:
            host = tuple(np.array(flat_N.addressable_data(0)) for flat_N in pieces)
            arrays = self.flat_layout.split(host)
            return {name: place(np.array(array), REPLICATED) for name, array in arrays.items()}

        return replace(state, params=leaves(state.params), m=leaves(state.m), v=leaves(state.v))

    def train_step(self, state: Any, batch: Any) -> Any:
        flatten, split = self.flat_layout.flatten, self.flat_layout.split
        flat = replace(state, params=flatten(state.params), m=flatten(state.m), v=flatten(state.v))
        new, metrics, _ = self._step(flat, batch)
        return replace(new, params=split(new.params), m=split(new.m), v=split(new.v)), metrics


class Fields(Jitted):
    """Fields of a batch are copied to the device one by one, and not packed."""

    def stage(self, rows: Sequence[Batch]) -> Any:
        return {name: self.trainer.ranks.place(array, BY_RANK) for name, array in rows[0].items()}

    def train_step(self, state: Any, batch: Any) -> Any:
        return self._fields_step(state, batch)[:2]


class Ahead(Shipped):
    """As shipped, but the rows of the next call are on the device before metrics are read, one call late."""

    waiting: Any = None
    rows: Any = None

    def stage(self, rows: Sequence[Batch]) -> Any:
        self.rows = rows
        return self.waiting if self.waiting is not None else super().stage(rows)

    def read(self) -> None:
        self.waiting = super().stage(self.rows)
        super().read()


class Late(Ahead):
    """As `ahead`, and metrics are read two calls late: one more step is under way while the host waits."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        trainer._metrics = deque(maxlen=3)

    def read(self) -> None:
        self.waiting = Shipped.stage(self, self.rows)
        self.trainer.metrics(max(0, self.trainer.num_steps - 3))


class Unread(Ahead):
    """As `ahead`, and metrics are copied to the host but not waited for."""

    def read(self) -> None:
        self.waiting = Shipped.stage(self, self.rows)


class Pinned(Jitted):
    """Metrics are a result in pinned memory of the host, which the program itself writes."""

    def shardings(self, inputs: Any, outputs: Any) -> dict[str, Any]:
        told = super().shardings(inputs, outputs)
        state, metrics = told["out_shardings"]
        return told | {"out_shardings": (state, metrics.with_memory_kind("pinned_host"))}


class Scan8(Jitted):
    """Eight steps a call, as a loop over eight staged batches; metrics of all eight come back."""

    steps_per_call = 8
    unroll = 1
    batch_spec = PartitionSpec(None, *BY_RANK)

    def stage(self, rows: Sequence[Batch]) -> Any:
        return self.trainer.stage_steps(rows)

    def outputs(self, inputs: Any) -> Any:
        return inputs[0], self.batch_spec

    def train_step(self, state: Any, batch: Any) -> Any:
        return lax.scan(lambda own, part: self._step(own, part)[:2], state, batch, unroll=self.unroll)


class Unroll8(Scan8):
    """Eight steps a call, written out one after another."""

    unroll = 8


class Excess(Jitted):
    """XLA may skip roundings to bfloat16 inside fusions: other numbers; what plain experiments run."""

    options: ClassVar[dict[str, Any]] = {"xla_allow_excess_precision": True}


FORMS: dict[str, Callable[[Trainer], Shipped]] = {
    "shipped": Shipped,
    "jit_call": Jitted,
    "unsharded": Unsharded,
    "same_batch": SameBatch,
    "no_readback": NoReadback,
    "late_copy": LateCopy,
    "lean": Lean,
    "donated_batch": DonatedBatch,
    "metrics_ring": MetricsRing,
    "ring_same_batch": RingSameBatch,
    "leaves": Leaves,
    "fields": Fields,
    "ahead": Ahead,
    "late": Late,
    "unread": Unread,
    "pinned": Pinned,
    "scan8": Scan8,
    "unroll8": Unroll8,
    "excess": Excess,
}
