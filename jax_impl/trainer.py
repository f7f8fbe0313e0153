"""Trainer: the library's door. A model, its loss and a problem in; steps, metrics and state out.

    trainer = Trainer(problem, execution, "jit", side=Side(build, loss))
    for rows in batches:
        trainer.step(rows)
        print(trainer.metrics().loss)

Must not: touch files. Counterpart: `torch_impl/trainer.py`.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jax_impl import parallel, runtime, state
from jax_impl.baselines import Baseline
from jax_impl.compile import Compiled, compile_observed, compile_step, uncompiled
from jax_impl.edits import Seen, edited
from jax_impl.feed import Feed, Stage
from jax_impl.memory import METRICS, Arena
from jax_impl.models import Side, preset_side
from jax_impl.state import State
from jax_impl.step import Batch as DeviceBatch
from jax_impl.step import Step, make_step
from spec import codec
from spec.data.batches import Batch, RowSource, open_source
from spec.edits import Edit, constants
from spec.edits.data import edited_rows
from spec.edits.weights import moved
from spec.errors import RuleError
from spec.mapping.links import jax_table
from spec.run import Execution, Problem
from spec.weights import Tensors, init_parameters


@dataclass(frozen=True)
class Metrics:
    """What one step reports; all but `tokens` are of the global batch."""

    step: int
    """How many steps were dispatched before it."""
    loss: float
    grad_norm: float
    """Before clipping."""
    lr: float
    skipped: int
    """Updates refused so far."""
    tokens: int
    """Losses counted in this rank's rows."""


class Trainer:
    """One run on this process's device.

    Args:
      mode: `jit`, `nojit` or `baseline:NAME`.
      edits: changes to the step's constants.
      side: the model and loss; the preset's own when None. A model that comes with values keeps them, and
        every rank takes those of rank 0.
      source: where `feed` takes rows from; the problem's own when None.
      ranks: the processes; joined here when None, and then `close` is the caller's to call.
    """

    def __init__(
        self,
        problem: Problem,
        execution: Execution,
        mode: str,
        edits: Iterable[Edit] = (),
        side: Side | None = None,
        source: RowSource | None = None,
        ranks: parallel.Ranks | None = None,
    ) -> None:
        runtime.configure(problem, execution)
        self.problem, self.mode, self._source = problem, mode, source
        self.ranks = ranks or parallel.join(execution)
        self._edits = tuple(edits)
        """Planted changes."""
        chosen = constants(problem, self._edits)
        self._edited: Seen = {}
        """What stood where they acted inside the model."""
        # A preset's own model reads some of its constants itself.
        calls = [edit for edit in self._edits if side or not hasattr(chosen, edit.name)]
        self.side = edited(side or preset_side(problem, chosen), calls, self._edited)
        table = problem.parameter_table()
        self.compiled: Compiled | None = None
        """What the step became; None until the first batch tells its shapes."""
        self._observed: Step | None = None
        self.state: State
        if mode.startswith("baseline:"):
            if self._edits:
                raise RuleError("A baseline is stock.", f"edits on {mode}", "edit another mode")
            name = mode.removeprefix("baseline:")
            self.state = baseline = Baseline(name, self.side, problem, chosen, self.ranks)
            self.compiled = uncompiled(baseline.step, mode, "a baseline compiles inside its first steps")
            self._observed = baseline.observed
        else:
            own_table = jax_table(table, self.side.links) if self.side.links else table
            self.state = arena = Arena(self.side.build(), own_table, problem.profile, self.ranks)
            arena.links = self.side.links
            self._step = make_step(self.side, problem, chosen, arena)
        if side is None:
            initial = init_parameters(table, problem.seed_weights)
            self.load({f"param/{name}": values for name, values in initial.items()})
        else:
            self.load(self.ranks.broadcast(self.export(["param", "buffer"])))
        self.num_steps = 0
        """Steps dispatched."""
        self.stage = Stage(self.ranks)
        self._metrics: deque[jax.Array] = deque(maxlen=2)

    @cached_property
    def feed(self) -> Feed:
        """This rank's rows of every step."""
        return Feed(self._source or open_source(self.problem), self.problem, self.ranks)

    @property
    def applied(self) -> int:
        """Updates made so far; waits for the device."""
        return self.state.applied

    def step(self, rows: Batch) -> None:
        """Dispatches one step on this rank's rows; returns as soon as the device has all its orders."""
        self.launch(self.stage(edited_rows(self._edits, rows, self.problem.workload)))

    def launch(self, batch: DeviceBatch) -> None:
        """The second half of `step`: one call, on rows that `stage` has put on the device."""
        if self.compiled is None:
            assert isinstance(self.state, Arena)
            self.compiled = compile_step(self._step, self.state, batch, self.mode, self.problem.profile)
        self.state.train_state, metrics = self.compiled.step(self.state.train_state, batch)
        metrics.copy_to_host_async()
        self._metrics.append(metrics)
        self.num_steps += 1

    def look(self, rows: Batch) -> Any:
        """Keeps the gradients that a step on these rows would have, for `export`; returns the state after it.

        Nothing else changes. All ranks call this together.
        """
        batch = self.stage(edited_rows(self._edits, rows, self.problem.workload))
        if self._observed is None:
            assert isinstance(self.state, Arena)
            self._observed = compile_observed(self._step, self.state, batch, self.problem.profile)
        after, _, self.state.seen = self._observed(self.state.train_state, batch)
        return after

    def metrics(self, step: int | None = None) -> Metrics:
        """Metrics of a step, the last when None; waits until the device is through with that step.

        Kept are those of the last two, so that a loop can dispatch step n and then read step n - 1.
        """
        number = self.num_steps - 1 if step is None else step
        age = self.num_steps - 1 - number
        assert 0 <= age < len(self._metrics), f"metrics of step {number} after step {self.num_steps - 1}"
        row = np.asarray(self._metrics[-1 - age].addressable_data(0))[0]
        values = dict(zip(METRICS, row.tolist(), strict=True))
        return Metrics(
            step=number,
            loss=values["loss"],
            grad_norm=values["grad_norm"],
            lr=values["lr"],
            skipped=int(values["skipped"]),
            tokens=int(values["tokens"]),
        )

    def export(self, phases: Iterable[str]) -> Tensors:
        """Copies of the phases on the host, keys `phase/name`; waits for the device."""
        return moved(self._edits, state.export(self.state, phases), back=True)

    def load(self, tensors: Tensors) -> None:
        """Puts a state in place, keys `phase/name`; see `jax_impl.state.load`."""
        state.load(self.state, moved(self._edits, tensors))

    def facts(self) -> dict[str, Any]:
        """What this trainer really holds, for the manifest."""
        parameters = state.describe(self.state)
        return {
            "parameters": parameters,
            "ties": self.state.ties,
            "precision": codec.to_dict(self.problem.profile),
            "world_size": self.ranks.world_size,
            "num_params": sum(math.prod(parameter["shape"]) for parameter in parameters),
            "edited": self._edited,
        }

    def close(self) -> None:
        """Leaves the group of processes; to be called on every way out by whoever let the trainer join it."""
        self.ranks.close()
