"""Trainer: the library's door. A model, its loss and a problem in; steps, metrics and state out.

    trainer = Trainer(problem, execution, "eager", side=Side(build, loss))
    for rows in batches:
        trainer.step(rows)
        print(trainer.metrics().loss)

Must not: touch files. Counterpart: `jax_impl/trainer.py`.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spec import codec
from spec.checkpoint import Checkpoint, Position
from spec.data.batches import Batch, RowSource, open_source
from spec.edits import CATALOGUE, Constants, Edit, constants
from spec.edits.data import edited_rows
from spec.edits.decay import edited_table
from spec.edits.weights import moved
from spec.errors import RuleError
from spec.own_optimizer import refuse_compiled, refuse_saving
from spec.precision import Profile
from spec.run import Execution, Problem, check_mode
from spec.state import LOADED_PHASES, check_names, of_phase, of_rank, own_key
from spec.weights import Tensors, init_parameters
from torch_impl import parallel, runtime, state
from torch_impl.baselines import Baseline
from torch_impl.compile import Compiled, compile_step, uncompiled
from torch_impl.edits import Seen, edited
from torch_impl.feed import Feed, Stage
from torch_impl.generators import Generators
from torch_impl.memory import METRICS, Arena
from torch_impl.models import Side, preset_side
from torch_impl.own_optimizer import OwnUpdate
from torch_impl.state import State
from torch_impl.step import make_step


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
      mode: `eager`, `inductor`, `graph`, `graph+inductor` or `baseline:NAME`.
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
        _refuse_edits(calls, chosen, mode)
        table = edited_table(self._edits, problem.parameter_table())
        self.compiled: Compiled | None = None
        """What the step became; None until the first batch tells its shapes."""
        self.state: State
        self._own: OwnUpdate | None = None
        self._is_first = False
        """Whether the step that runs is that in which an optimizer of the user's own makes its state."""
        if self.side.optimizer:
            refuse_compiled(mode, f"mode {mode}", self.ranks.device.type)
        if mode.startswith("baseline:"):
            if self._edits:
                raise RuleError("A baseline is stock.", f"edits on {mode}", "edit another mode")
            name = mode.removeprefix("baseline:")
            self.state = Baseline(name, self.side, problem, chosen, self.ranks)
            self.compiled = uncompiled(Baseline.step, mode, "a baseline compiles inside its first steps")
        else:
            self.state = Arena(self.side.build(), table, problem.profile, self.ranks.device)
            self._step = make_step(self.side, problem, chosen, self.ranks)
            self._own = self._step.update if isinstance(self._step.update, OwnUpdate) else None
        if side is None:
            initial = init_parameters(table, problem.seed_weights)
            self.load({f"param/{name}": values for name, values in initial.items()})
        else:
            self._take_values_of_rank_0()
        self.num_steps = 0
        """Steps dispatched by this trainer."""
        self._first_step = 0
        self._captured_at = 0
        """Steps dispatched before the graph was there."""
        self._plan: Any = None
        self._generators = Generators(self.ranks)
        self.stage: Callable[[Batch], Any] = Stage(self.ranks)
        """The first half of `step`: puts rows where `launch` finds them."""
        self._read_back = _ReadBack(self.state.metrics)

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
    def applied(self) -> int:
        """Updates made so far; waits for the device."""
        return int(self.state.applied)

    def step(self, rows: Batch) -> None:
        """Dispatches one step on this rank's rows; returns as soon as the device has all its orders."""
        self.launch(self.stage(self.planted(rows)))

    def planted(self, rows: Batch) -> Batch:
        """The rows with the planted changes of data."""
        return edited_rows(self._edits, rows, self.problem.workload)

    def launch(self, batch: Any) -> None:
        """The second half of `step`, on rows that `stage` has put on the device."""
        is_captured = self.compiled is not None and self.compiled.whole is not None
        if self._own is not None and self._own.has_begun:
            # What is captured now has the rates of now.
            self._own.audit() if is_captured else self._own.take_rates()
        if self.compiled is None or self._is_first:
            batch = self._compile(batch)
        assert self.compiled is not None
        if self.compiled.whole is not None:
            self.compiled.whole.launch(batch)
        else:
            self.compiled.step(self.state, batch)
            self._read_back.put(self.num_steps)
        self.num_steps += 1

    def _compile(self, batch: Any) -> Any:
        """Makes the step run in its mode; the rows at hand, where it then finds them."""
        assert isinstance(self.state, Arena)
        own, mode = self._own, self.mode
        # An optimizer makes its state in its first step, where a graph could not find it again.
        is_first = own is not None and mode != "eager" and not own.has_state
        if own is not None and is_first:
            check_mode("torch", mode, self.ranks.device.type)
            if not own.has_begun:
                own.begin(self.state, capturable=True)
            mode = "eager"
        compiled = compile_step(self._step, self.state, batch, mode, self.compiled_as, self._plan)
        if is_first:
            why = "the first step runs eagerly: the optimizer makes its state in it"
            compiled = replace(compiled, reasons=compiled.reasons | {"capture": why})
        # Not before: where a capture is refused, the next step tries again and does not go on without a word.
        self.compiled, self._is_first = compiled, is_first
        if self.compiled.whole is None:
            return batch
        # From here on rows go to where the graph reads them; those at hand were for its shapes.
        self.stage, self._captured_at = self.compiled.whole.stage, self.num_steps
        return self.stage({name: values.cpu() for name, values in batch.items()})

    def metrics(self, step: int | None = None) -> Metrics:
        """Metrics of a step, the last when None; waits until the device is through with that step.

        Kept are those of the last two, so that a loop can dispatch step n and then read step n - 1.
        """
        number = self.num_steps - 1 if step is None else step
        whole = self.compiled.whole if self.compiled else None
        if whole is None or number < self._captured_at:
            read = self._read_back.get(number)
        else:
            read = whole.metrics(number - self._captured_at)
        values = dict(zip(METRICS, read, strict=True))
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
        return dict(moved(self._edits, state.export(self.state, phases), back=True))

    def load(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Writes a state in place, keys `phase/name`; see `torch_impl.state.load`."""
        state.load(self.state, moved(self._edits, tensors))
        if self.compiled is not None and self.compiled.whole is not None:
            self.compiled.whole.ledger.check()

    def checkpoint(self) -> tuple[Position, Tensors]:
        """Where the run stands, and copies on the host of all that it takes to go on: for `Saver.save`.

        Waits for the device. All ranks call this together; the tensors are whole on rank 0 alone.

        Raises:
          RuleError: the optimizer is the user's own, whose state is not known.
        """
        refuse_saving(self.side.optimizer)
        position = Position(step=self.next_step, applied=self.applied, skipped=int(self.state.skipped))
        tensors = self.export(("param", "m", "v")) if self.ranks.rank == 0 else {}
        own = {f"buffer/{name}": buffer for name, buffer in self.state.tensors("buffer").items()}
        for key, tensor in (own | self._generators.in_use()).items():
            for rank, values in enumerate(self.ranks.gather(tensor)):
                tensors[own_key(key, rank)] = values.to("cpu", copy=True).numpy()
        return position, tensors

    def resume(self, checkpoint: Checkpoint) -> None:
        """Goes on from a checkpoint, whichever side wrote it; in place, tensor by tensor. For all ranks.

        On another number of ranks, those that had no values of their own begin with the buffers of rank 0.

        Raises:
          RuleError: it does not hold this model's tensors, or one is damaged: what was written until then
            stays, so the trainer is to be given up.
        """
        position, tensors = checkpoint.position, of_rank(checkpoint.tensors, self.ranks.rank)
        for phase in LOADED_PHASES:
            check_names(phase, self.state.tensors(phase), of_phase(tensors, phase))
        self.load({f"meta/{name}": np.array(getattr(position, name)) for name in ("applied", "skipped")})
        self.load(tensors)
        self._generators.put_back(checkpoint.tensors)
        self._first_step = position.step - self.num_steps
        self._plan = checkpoint.written_by.get("plan")

    def facts(self) -> dict[str, Any]:
        """What this trainer really holds, for the manifest."""
        parameters = self.state.describe()
        return {
            "parameters": parameters,
            "ties": self.state.ties,
            "precision": codec.to_dict(self.problem.profile),
            "world_size": self.ranks.world_size,
            "num_params": sum(math.prod(parameter["shape"]) for parameter in parameters),
            "edited": self._edited,
        }

    def close(self) -> None:
        """Leaves the process group; to be called on every way out by whoever let the trainer join it."""
        self.ranks.close()

    def _take_values_of_rank_0(self) -> None:
        for phase in ("param", "buffer"):
            for tensor in self.state.tensors(phase).values():
                self.ranks.broadcast(tensor)
        self.state.refresh()


def _refuse_edits(calls: Iterable[Edit], chosen: Constants, mode: str) -> None:
    """Refuses edits that a mode cannot make.

    Raises:
      RuleError: there is one.
    """
    if any(CATALOGUE[edit.name].reach == "model" for edit in calls) and mode != "eager":
        raise RuleError(
            "Calls inside a model are edited where they are made one by one.",
            f"{', '.join(edit.name for edit in calls)} in mode {mode}",
            "take --mode torch=eager",
        )
    if chosen.clip_parts and mode.startswith("graph"):
        raise RuleError(
            "A graph reduces gradients while they are made.",
            f"clip_parts in mode {mode}",
            "take --mode torch=eager",
        )


class _ReadBack:
    """Host copies of the metrics of the last two steps; on a GPU queued behind the step, so nothing waits."""

    def __init__(self, metrics: Tensor) -> None:
        self._metrics, self._on_gpu = metrics, metrics.is_cuda
        self._rows = [torch.empty_like(metrics, device="cpu", pin_memory=self._on_gpu) for _ in range(2)]
        self._copied = [torch.cuda.Event() for _ in range(2)] if self._on_gpu else []
        self._last = -1

    def put(self, step: int) -> None:
        self._rows[step % 2].copy_(self._metrics, non_blocking=True)
        if self._on_gpu:
            self._copied[step % 2].record()
        self._last = step

    def get(self, step: int) -> list[float]:
        assert max(0, self._last - 1) <= step <= self._last, f"metrics of step {step} after step {self._last}"
        if self._on_gpu:
            self._copied[step % 2].synchronize()
        return self._rows[step % 2].tolist()
