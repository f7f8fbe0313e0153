"""The run's step in float64, on the CPU, one process a side: as it was, and with seed and batches held out.

The JAX side runs, keeps the states before the probe steps, and makes those steps again with rounding noise.
The torch side then makes the same steps, edited in one way after another. Must not: choose edits.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from parity import folders
from parity.explain.residuals import Left, Reference
from parity.explain.worker import Worker
from parity.judge.align import Measured
from parity.measuring import probe_steps
from parity.pairs import read
from spec import codec
from spec.data.folder import batch_file
from spec.edits import Edit
from spec.errors import RuleError
from spec.job import Job, Keep, Perturb
from spec.own_optimizer import OwnOptimizer
from spec.run import DataSpec, Execution, RunSpec
from spec.weights import load_tensors, save_tensors
from spec.worker.lockstep import STATES

_PHASES = ("act", "grad", "clipped", "m", "v", "param", "buffer")
_RERUNS = 2
_U64 = 2.0**-53
_HELD_OUT = 1009
"""Added to the seeds of what is held out."""
_MOST_STEPS = 64
"""A run is followed so far, or to what differs first; learning rates of all its steps are compared anyway."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a run folder says of itself."""

    folder: Path
    spec: RunSpec
    edits: dict[str, tuple[Edit, ...]]
    """Planted when it was run: part of the sides as they are."""
    jax: Measured
    torch: Measured
    pair: Path | None
    first_step: int | None = None
    """The step that the run's verdict is about; None where nothing differed."""
    class_: str | None = None
    """Of what differed there."""

    @property
    def own_optimizers(self) -> bool:
        """Whether each side brings its own, which edits do not reach."""
        return isinstance(self.spec.problem.optimizer, OwnOptimizer)

    @property
    def followed_steps(self) -> int:
        """How many of its steps are made again at most."""
        return max(_MOST_STEPS, (self.first_step or 0) + 1)

    @staticmethod
    def read(folder: Path) -> "Told":
        """Reads a finished run of both sides.

        Raises:
          RuleError: it is none.
        """
        content = folders.read_run(folder)
        passes: dict[str, Measured] = {}
        for path in sorted(folder.glob("passes/*/job.json")):
            job = folders.read_json(path, "side", "purpose")
            if job["purpose"] == "run" and (path.parent / "done.json").exists():
                passes.setdefault(job["side"], Measured(job["side"], path.parent))
        if len(passes) != 2:
            raise RuleError(
                "A difference is between the run passes of two sides.",
                f"{folder}: finished ones of {', '.join(passes) or 'none'}",
                "make a run with parity run",
            )
        result = folders.read_json(folder / folders.RESULT)
        spec = codec.from_dict(RunSpec, content["spec"])
        first = (result.get("numerics") or {}).get("first_divergence") or {}
        return Told(
            folder=folder,
            spec=spec,
            edits={
                side: tuple(codec.from_dict(Edit, edit) for edit in edits)
                for side, edits in content["edits"].items()
            },
            jax=passes["jax"],
            torch=passes["torch"],
            pair=Path(result["pair"]["folder"]) if result.get("pair") else None,
            first_step=first.get("step"),
            class_=first.get("class"),
        )


class Setting:
    """One problem on which edits are tried.

    Args:
      spec: in float64, for one process.
      out: folder of its passes.
      promote: whether a user's own casts are computed in float64 too.
    """

    def __init__(
        self, name: str, told: Told, spec: RunSpec, out: Path, torch: Worker, *, promote: bool = False
    ) -> None:
        self.name, self.spec, self._promote = name, spec, promote
        self._told, self._out, self._torch = told, out, torch
        # What differs in some batches alone may show at none of the usual steps.
        steps = {*probe_steps(told.spec, told.jax.curve), told.first_step or 0}
        last = min(told.followed_steps, told.jax.curve.num_steps)
        self._probes = sorted(step for step in steps if step < last)
        self._reference: Reference | None = None
        self._known: dict[tuple[Edit, ...], Left] = {}
        self.seen: dict[tuple[Edit, ...], dict[str, list[str]]] = {}
        """What stood where the edits of a try acted inside the model."""

    def planted(self, edit: Edit) -> float | None:
        """The value of the torch side's own edit of the same constant; None where it has none."""
        same = (
            one for one in self._told.edits["torch"] if (one.name, one.target) == (edit.name, edit.target)
        )
        return next((one.value for one in same), None)

    def prepare(self) -> list[Job]:
        """The JAX side's jobs, to be done in this order before anything else."""
        keep = Keep(steps=tuple(self._probes), dtype="float64")
        run = replace(self._job("jax", "run", ()), keep_states=keep, steps=self._probes[-1] + 1)
        noise = Perturb(reruns=_RERUNS, roundoff=_U64)
        steps = replace(self._lockstep("jax", "lockstep", self._told.edits["jax"]), perturb=noise)
        return [replace(run, edits=self._told.edits["jax"]), steps]

    def left(self, edits: tuple[Edit, ...]) -> Left:
        """What is left between the sides with these edits on the torch side, beside its own."""
        if not self._known:
            self._complete_states()
        if edits not in self._known:
            self._known[edits] = self._make(edits)
        return self._known[edits]

    @property
    def reference(self) -> Reference:
        """The JAX side's steps."""
        if self._reference is None:
            self._reference = Reference(Measured("jax", self._out / "jax_lockstep"))
        return self._reference

    @property
    def tries(self) -> int:
        """Torch passes made."""
        return len(self._known)

    @property
    def states(self) -> Path:
        """The folder of the states that steps start from."""
        return self._out / "jax_run" / STATES

    def job(self, side: str, edits: tuple[Edit, ...]) -> Job:
        """The lockstep job that a try of a side is."""
        return self._lockstep(side, f"{side}_try", (*self._told.edits[side], *edits))

    def _complete_states(self) -> None:
        """Adds the buffers that torch's model alone has, counters and constants, as they were at first."""
        if self.spec.pair is None:
            return
        initial = load_tensors(Path(str(self.spec.pair.initial)))
        own = {key: array for key, array in initial.items() if key.startswith("buffer/")}
        for file in self.states.glob("step*.safetensors"):
            state = load_tensors(file)
            if own.keys() - state.keys():
                save_tensors(file, own | state)

    def _make(self, edits: tuple[Edit, ...]) -> Left:
        number = len(list(self._out.glob("torch_[0-9]*")))
        job = self._lockstep("torch", f"torch_{number:03d}", (*self._told.edits["torch"], *edits))
        folder = self._torch.do(job)
        left = self.reference.against(folder)
        manifest = folders.read_json(folder / "manifest.json")
        self.seen[edits] = manifest["facts"].get("edited", {})
        # The numbers of a try stand in the record; its tensors would fill the disk.
        shutil.rmtree(folder / "tensors", ignore_errors=True)
        return left

    def _lockstep(self, side: str, name: str, edits: tuple[Edit, ...]) -> Job:
        look = tuple(f"{phase}@{step}" for step in self._probes for phase in _PHASES)
        base = self._job(side, name.removeprefix(f"{side}_"), edits)
        return replace(base, purpose="lockstep", state=str(self.states), observe=look)

    def _job(self, side: str, name: str, edits: tuple[Edit, ...]) -> Job:
        return Job(
            side=side,
            purpose="run",
            spec=self.spec,
            mode="eager" if side == "torch" else "jit",
            steps=self._probes[-1] + 1,
            out=str(self._out / f"{side}_{name}"),
            edits=edits,
            promote=self._promote,
        )


def as_it_was(told: Told, precision: str = "f64") -> RunSpec:
    """The run's own problem in float64, in one process that takes the same micro-batches."""
    problem, ranks = told.spec.problem, told.spec.execution.world_size
    problem = replace(problem, precision=precision, micro_batches=problem.micro_batches * ranks)
    return replace(told.spec, problem=problem, execution=Execution())


def held_out(told: Told, out: Path) -> RunSpec:
    """The same with other first values and other batches."""
    spec = as_it_was(told)
    problem = replace(
        spec.problem,
        seed_weights=spec.problem.seed_weights + _HELD_OUT,
        seed_data=spec.problem.seed_data + _HELD_OUT,
    )
    if spec.pair is None or told.pair is None:
        return replace(spec, problem=problem)
    batches, initial = out / "batches", out / "initial.safetensors"
    _later_batches(told, batches)
    shuffled(Path(str(spec.pair.initial)), initial)
    problem = replace(problem, data=DataSpec(kind="folder", path=str(batches)))
    return replace(spec, problem=problem, pair=replace(spec.pair, initial=str(initial)))


def _later_batches(told: Told, out: Path) -> None:
    """The batches of a pair that come after those of the run, numbered from 0."""
    assert told.pair is not None
    written = len(list(Path(str(told.spec.problem.data.path)).glob("step*.safetensors")))
    everything = out.with_name("all_batches")
    read.write_batches(told.pair, everything, 2 * written)
    out.mkdir(parents=True)
    for step in range(written):
        batch_file(everything, written + step).rename(batch_file(out, step))
    shutil.rmtree(everything)


def shuffled(initial: Path, out: Path) -> None:
    """First values of the same spread: the elements of each parameter in another order."""
    generator = np.random.default_rng(_HELD_OUT)
    values = load_tensors(initial)
    for key, array in values.items():
        if key.startswith("param/"):
            values[key] = generator.permutation(array.ravel()).reshape(array.shape)
    save_tensors(out, values)
