"""What a job asks to see of a run: phases of the state at chosen steps, written as tensors by rank 0.

Gradients and activations never leave the timed program. They come from programs of their own, run before a
step from the state that it starts from; whether that step then ended where the observed one did, to the bit,
is told. Must not: change the state. Counterpart: `torch_impl/observe.py`.
"""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jax_impl.compile import without_compiler
from jax_impl.memory import Arrays, TrainState
from jax_impl.promote import through
from jax_impl.runtime import compiler_options, matmul_precision
from jax_impl.step import cast
from jax_impl.trainer import Trainer
from jax_impl.xla import compilations
from jax_impl.xla.arrange import arranged
from spec.data.batches import Batch
from spec.data.folder import batch_file
from spec.edits.weights import moved
from spec.jit import JitOptions
from spec.job import Job
from spec.weights import Tensors, raw_bytes, save_tensors

INIT = -1
"""The step number of what is observed before the first step."""

OUTPUT = "output"
"""The name of what the model itself returns, among the activations."""

Forward = Callable[[Arrays, Arrays, Batch], Arrays]
"""(parameters, buffers, rows) -> activations by key."""

_FROM_OWN_PROGRAM = ("grad", "clipped")


class Observer:
    """Writes `tensors/stepNNNNNN.safetensors` and `tensors/init.safetensors` of one job."""

    def __init__(self, job: Job) -> None:
        self._folder = Path(job.out) / "tensors"
        self._phases: dict[int, list[str]] = {}
        for phase, step in (job.observed_at(entry) for entry in job.observe):
            self._phases.setdefault(step, []).append(phase)
        self._edits = job.edits
        self._activations: Tensors = {}
        self._rows: Batch = {}
        self.activations: list[str] = []
        """Names of the activations that were seen; a program has no order that could be told."""
        self._forward: Forward | None = None
        self._foreseen: TrainState | None = None
        self._agreed: dict[int, bool] = {}

    def write_into(self, folder: Path) -> None:
        """From here on the tensors go into another pass folder."""
        self._folder = folder / "tensors"

    def before(self, trainer: Trainer, step: int, rows: Batch, taken: Batch) -> None:
        """Looks at what is gone after the step, from the state that it starts from. For all ranks to call.

        Args:
          rows: in their own order, which activations are written in.
          taken: as the step takes them.
        """
        phases, self._rows = self._phases.get(step, ()), rows
        if any(phase in _FROM_OWN_PROGRAM for phase in phases):
            self._foreseen = trainer.look(taken)
        if "act" in phases and trainer.ranks.rank == 0:
            self._forward = self._forward or forward_program(trainer, rows)
            self._activations = dict(moved(self._edits, activations(trainer, rows, self._forward), back=True))
            self.activations = [key.removeprefix("act/") for key in self._activations]

    def after(self, trainer: Trainer, step: int) -> None:
        """Writes what was asked for of this step; to be called at `INIT` too."""
        if self._foreseen is not None:
            self._agreed[step] = _same_bits(self._foreseen, trainer.state.train_state)
            self._foreseen = None
        phases = self._phases.get(step, [])
        if not phases or trainer.ranks.rank:
            return
        tensors = trainer.export(phase for phase in phases if phase not in ("act", "batch", "eval"))
        if "act" in phases:
            tensors |= self._activations
        if "eval" in phases:
            tensors |= evaluation(trainer, self._rows)
        if "batch" in phases:
            tensors |= {f"batch/{k}": values for k, values in trainer.feed.global_rows(step).items()}
        name = self._folder / "init.safetensors" if step == INIT else batch_file(self._folder, step)
        save_tensors(name, tensors)

    def agreement(self) -> str:
        """Whether the observed and the timed program are one in what they compute, in words."""
        parted = [step for step, same in self._agreed.items() if not same]
        if not self._agreed:
            return "no gradients were observed: only the timed program ran"
        if not parted:
            return f"observed and timed program ended equal to the bit, at steps {sorted(self._agreed)}"
        return f"observed and timed program ended unequal in their last bits, at steps {parted}"


def forward_program(trainer: Trainer, rows: Batch) -> Forward:
    """The pass that gives all activations, compiled for rows like these; not compiled in mode nojit."""
    arena, profile = trainer.state, trainer.compiled_as

    def forward(params: Arrays, buffers: Arrays, batch: dict[str, jax.Array]) -> Arrays:
        # Layer by layer, however the step goes through them: a loop has one output for all.
        module = arranged(arena.module(cast(params, profile.compute), buffers), JitOptions())
        with matmul_precision(profile):
            run = nnx.capture(trainer.side.loss, nnx.Intermediate, method_outputs=nnx.Intermediate)
            _, outputs = run(module, batch)
        return cast(_by_call(outputs), profile.master)

    if trainer.mode == "nojit":
        return without_compiler(through(forward))
    arguments = arena.tensors("param"), arena.tensors("buffer"), rows
    with compilations.apart():
        return jax.jit(through(forward)).lower(*arguments).compile(compiler_options(profile))


def activations(trainer: Trainer, rows: Batch, program: Forward | None = None) -> Tensors:
    """Outputs of every submodule on this rank's rows, keys `act/PATH`, in the dtype of the master weights.

    A submodule that is called again in one pass gets `act/PATH#2`, and so on. Outputs that are no arrays are
    left out. The pass runs on this rank alone.

    Args:
      program: `forward_program`'s; compiled anew when None.
    """
    program = program or forward_program(trainer, rows)
    found = program(trainer.state.tensors("param"), trainer.state.tensors("buffer"), rows)
    return {key: np.array(output) for key, output in found.items()}


def evaluation(trainer: Trainer, rows: Batch) -> Tensors:
    """`eval/loss`, shape (1,): the mean loss of this rank's rows in evaluation mode, by the state as it is.

    Empty for a model without running statistics, which evaluates as it trains, and for one in linen, whose
    mode is an argument of the user's calls.
    """
    arena, profile = trainer.state, trainer.compiled_as
    averages: list[bool] = []

    def forward(params: Arrays, buffers: Arrays, batch: dict[str, jax.Array]) -> jax.Array:
        module = arena.module(cast(params, profile.compute), buffers)
        module.eval()
        averages.extend(hasattr(part, "use_running_average") for _, part in nnx.iter_modules(module))
        with matmul_precision(profile):
            total, count = trainer.side.loss(module, batch)
        return jnp.asarray(total / count, profile.master).reshape(1)

    with compilations.apart():
        program = jax.jit(through(forward)).lower(arena.tensors("param"), arena.tensors("buffer"), rows)
        if not any(averages):
            return {}
        found = program.compile(compiler_options(profile))(
            arena.tensors("param"), arena.tensors("buffer"), rows
        )
    return {"eval/loss": np.array(found)}


def _by_call(outputs: nnx.State) -> dict[str, jax.Array]:
    """The outputs of whole modules by `act/PATH`; what their other methods gave is left out."""
    calls = {}
    for path, intermediate in nnx.to_flat_state(outputs):
        # Joined first: a part of a linen module has its whole path in the last key.
        name, _, method = ".".join(map(str, path)).rpartition(".")
        if method != "__call__":
            continue
        name = name or OUTPUT
        for number, output in enumerate(intermediate.get_value(), start=1):
            if isinstance(output, jax.Array):
                calls[f"act/{name}" if number == 1 else f"act/{name}#{number}"] = output
    return calls


def _same_bits(one: TrainState, other: TrainState) -> bool:
    """Whether this rank's part of two states is equal to the bit."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(_bytes(a), _bytes(b)) for a, b in pairs)


def _bytes(array: jax.Array) -> np.ndarray:
    return np.frombuffer(raw_bytes(np.asarray(array.addressable_data(0))), np.uint8)
