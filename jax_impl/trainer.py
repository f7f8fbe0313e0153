"""Trainer: the library's door. A model, its loss and a problem in; steps, metrics and state out.

    trainer = Trainer(problem, execution, "jit", side=Side(build, loss))
    for rows in batches:
        trainer.step(rows)
        print(trainer.metrics().loss)

Must not: touch files. Counterpart: `torch_impl/trainer.py`.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jax_impl import own_optimizer, parallel, runtime, state
from jax_impl.baselines import Baseline
from jax_impl.compile import Compiled, compile_observed, compile_step, uncompiled
from jax_impl.edits import Seen, edited
from jax_impl.feed import Feed, Stage
from jax_impl.memory import METRICS, Arena
from jax_impl.models import Side, preset_side
from jax_impl.state import State
from jax_impl.step import Batch as DeviceBatch
from jax_impl.step import make_step
from jax_impl.xla import compilations, watch
from jax_impl.xla.arrange import arranged
from jax_impl.xla.first_steps import FirstSteps
from jax_impl.xla.packing import PackedStage
from jax_impl.xla.several import compile_several, stage_several
from spec import codec
from spec.checkpoint import Checkpoint, Position
from spec.data.batches import Batch, RowSource, open_source
from spec.edits import Edit, constants
from spec.edits.data import edited_rows
from spec.edits.decay import edited_table
from spec.edits.weights import moved
from spec.errors import RuleError
from spec.jit import jit_options
from spec.mapping.links import jax_table
from spec.own_optimizer import refuse_saving
from spec.precision import Profile
from spec.run import Execution, Problem
from spec.state import LOADED_PHASES, check_names, of_phase, of_rank, own_key
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
    """Losses counted in this process's rows."""


class Trainer:
    """One run on this process's device.

    Args:
      mode: `jit` (told more after a colon, see `spec/jit.py`), `nojit` or `baseline:NAME`.
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
        self._options = jit_options(mode)
        self.ranks = ranks or parallel.join(execution)
        self._edits = tuple(edits)
        """Planted changes."""
        chosen = constants(problem, self._edits)
        self._edited: Seen = {}
        """What stood where they acted inside the model."""
        # A preset's own model reads some of its constants itself.
        calls = [edit for edit in self._edits if side or not hasattr(chosen, edit.name)]
        self.side = edited(side or preset_side(problem, chosen), calls, self._edited)
        table = edited_table(self._edits, problem.parameter_table())
        self.stage = Stage(self.ranks)
        """The first half of `step`: puts rows on the device."""
        self.compiled: Compiled | None = None
        """What the step became, the longest launch of it; None until the first batch tells its shapes."""
        self._programs: dict[int, Compiled] = {}
        """By how many steps they make."""
        self._observed: Callable[[Any, DeviceBatch], tuple[Any, Any, Any]] | None = None
        self.state: State
        if mode.startswith("baseline:"):
            if self._edits or self.side.optimizer:
                raise RuleError("A baseline is stock.", f"edits on {mode}", "edit another mode")
            name = mode.removeprefix("baseline:")
            self.state = baseline = Baseline(name, self.side, problem, chosen, self.ranks)
            reason = "a baseline compiles inside its first steps"
            self.compiled = self._programs[1] = uncompiled(baseline.step, mode, reason)
            self._observed = baseline.observed
        else:
            own_table = jax_table(table, self.side.links) if self.side.links else table
            module = arranged(self.side.build(), self._options)
            self.state = arena = Arena(module, own_table, problem.profile, self.ranks, self._options.arrays)
            arena.links = self.side.links
            vocab = None if side else getattr(problem.sizes, "vocab", None)
            self.stage = packed = PackedStage(self.ranks, vocab)
            step = make_step(self.side, problem, chosen, arena)
            self._step = lambda state, batch: step(state, packed.packing.unpack(batch))
        if side is None:
            initial = init_parameters(table, problem.seed_weights)
            self.load({f"param/{name}": values for name, values in initial.items()})
        else:
            self.load(self.ranks.broadcast(self.export(["param", "buffer"])))
        self.num_steps = 0
        """Steps dispatched by this trainer."""
        self._first_step = 0
        self.first_steps = FirstSteps(self.ranks.mesh)
        """What is checked as the first steps run."""
        self._metrics: deque[tuple[int, jax.Array]] = deque(maxlen=2)
        """The first step of a launch, and the metrics of its steps."""

    @cached_property
    def feed(self) -> Feed:
        """This rank's rows of every step."""
        return Feed(self._source or open_source(self.problem), self.problem, self.ranks)

    @cached_property
    def compiled_as(self) -> Profile:
        """The profile as compilers are told of it."""
        leave = constants(self.problem, self._edits).excess_precision
        return replace(self.problem.profile, excess=leave)

    @property
    def next_step(self) -> int:
        """The step of the run that is next: steps done, those before a resume included."""
        return self._first_step + self.num_steps

    @property
    def steps_per_launch(self) -> int:
        """How many steps the mode asks for in one launch."""
        return self._options.steps_per_launch

    @property
    def applied(self) -> int:
        """Updates made so far; waits for the device."""
        return self.state.applied

    def step(self, rows: Batch) -> None:
        """Dispatches one step on this rank's rows; returns as soon as the device has all its orders."""
        self.launch(self.stage(self.planted(rows)))

    def planted(self, rows: Batch) -> Batch:
        """The rows with the planted changes of data."""
        return edited_rows(self._edits, rows, self.problem.workload)

    def launch(self, batch: DeviceBatch) -> None:
        """The second half of `step`: one call, on rows that `stage` has put on the device."""
        if 1 not in self._programs:
            with compilations.apart():
                self._programs[1] = compile_step(
                    self._step, self._begun(), batch, self.mode, self.compiled_as
                )
        self._launch(batch, 1)

    def steps(self, many: Sequence[Batch]) -> None:
        """Dispatches as many steps as batches are given, in one launch; metrics of all can be read."""
        self.launch_steps(self.stage_steps([self.planted(rows) for rows in many]))

    def stage_steps(self, many: Sequence[Batch]) -> DeviceBatch:
        """The first half of `steps`: puts rows of several steps on the device."""
        assert isinstance(self.stage, PackedStage), "a baseline makes its steps one by one"
        return stage_several(many, self.stage)

    def launch_steps(self, batches: DeviceBatch) -> None:
        """The second half of `steps`, on rows that `stage_steps` has put on the device."""
        count = next(iter(batches.values())).shape[0]
        if count not in self._programs:
            with compilations.apart():
                self._programs[count] = compile_several(
                    self._step, self._begun(), batches, self.mode, self.compiled_as
                )
        self._launch(batches, count)

    def _begun(self) -> Arena:
        """The arena, an optimizer of the user's own begun with the parameters that it now holds."""
        assert isinstance(self.state, Arena)
        if self.side.optimizer is not None and self.state.train_state.own is None:
            own_optimizer.begin(self.side.optimizer, self.state)
        return self.state

    def _launch(self, batch: DeviceBatch, num_steps: int) -> None:
        self.compiled = self._programs[max(self._programs)]
        self.first_steps.before(self.state.train_state)
        with watch.waiting():
            self.state.train_state, metrics = self._programs[num_steps].step(self.state.train_state, batch)
        self.first_steps.after((self.state.train_state, metrics))
        self._metrics.append((self.num_steps, metrics))
        self.num_steps += num_steps
        watch.progress(self.num_steps)

    def look(self, rows: Batch) -> Any:
        """Keeps the gradients that a step on these rows would have, for `export`; returns the state after it.

        Nothing else changes. All ranks call this together.
        """
        batch = self.stage(self.planted(rows))
        with compilations.apart():
            if self._observed is None:
                self._observed = compile_observed(
                    self._step, self._begun(), batch, self.mode, self.compiled_as
                )
            after, _, self.state.seen = self._observed(self.state.train_state, batch)
        return after

    def metrics(self, step: int | None = None) -> Metrics:
        """Metrics of a step, the last when None; waits until the device is through with that step.

        Kept are those of the last two launches, so that a loop can dispatch step n and then read step n - 1.
        """
        number = self.num_steps - 1 if step is None else step
        kept = [(first, rows) for first, rows in self._metrics if first <= number < self.num_steps]
        assert kept, f"metrics of step {number} after step {self.num_steps - 1}"
        first, rows = kept[-1]
        # Asked for before the wait: the copy of the newest metrics takes longer than what the host does else.
        self._metrics[-1][1].copy_to_host_async()
        with watch.waiting():
            shares = [np.asarray(shard.data).reshape(-1, len(METRICS)) for shard in rows.addressable_shards]
        values = dict(zip(METRICS, shares[0][number - first].tolist(), strict=True))
        # A process that holds several ranks tells of the rows of all.
        values["tokens"] = sum(share[number - first, METRICS.index("tokens")] for share in shares)
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
        with compilations.apart():
            return dict(moved(self._edits, state.export(self.state, phases), back=True))

    def load(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Puts a state in place, keys `phase/name`; see `jax_impl.state.load`."""
        with compilations.apart():
            state.load(self.state, moved(self._edits, tensors))

    def checkpoint(self) -> tuple[Position, Tensors]:
        """Where the run stands, and copies on the host of all that it takes to go on: for `Saver.save`.

        Waits for the device. All ranks call this together; the tensors are whole on rank 0 alone.

        Raises:
          RuleError: the optimizer is the user's own, whose state is not known.
        """
        refuse_saving(self.side.optimizer)
        position = Position(step=self.next_step, applied=self.applied, skipped=self.state.skipped)
        tensors = self.export(("param", "m", "v")) if self.ranks.rank == 0 else {}
        for key, array in self.export(["buffer"]).items():
            with compilations.apart():
                gathered = self.ranks.gather(array)
            for rank, values in enumerate(gathered):
                tensors[own_key(key, rank)] = values
        return position, tensors

    def resume(self, checkpoint: Checkpoint) -> None:
        """Goes on from a checkpoint, whichever side wrote it; tensor by tensor. For all ranks to call.

        On another number of ranks, those that had no values of their own begin with the buffers of rank 0.

        Raises:
          RuleError: it does not hold this model's tensors, or one is damaged: what was written until then
            stays, so the trainer is to be given up.
        """
        position, tensors = checkpoint.position, of_rank(checkpoint.tensors, self.ranks.rank)
        for phase in LOADED_PHASES:
            check_names(phase, self.state.shapes(phase), of_phase(tensors, phase))
        self.load({f"meta/{name}": np.array(getattr(position, name)) for name in ("applied", "skipped")})
        self.load(tensors)
        self._first_step = position.step - self.num_steps

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
        if self.ranks.processes == 1:
            # A thread of XLA's that computes while Python ends would end the process by a signal.
            leaves = jax.tree.leaves(self.state.train_state)
            self.ranks.synchronize([leaf for leaf in leaves if not leaf.is_deleted()])
        self.ranks.close()
