"""Job: one thing that a side is asked to do, and the names of the files it answers with.

A worker is a function from a job file to a folder; nothing else passes between the referee and the sides.
"""

from dataclasses import dataclass, field
from pathlib import Path

from spec import codec, record
from spec.edits import Edit
from spec.errors import RuleError
from spec.run import SIDES, RunSpec, check_mode

PURPOSES = ("describe", "init", "run", "handoff", "lockstep", "time", "trace")
TRAINING = ("run", "handoff")
"""Purposes that train from their first step to their last; a hand-off is a stretch of a run that changes
sides."""
PHASES = ("batch", "param", "act", "grad", "clipped", "m", "v", "buffer", "eval")
"""What can be observed, in causal order within a step; `eval` is the loss of the step's rows after it, in
evaluation mode."""


@dataclass(frozen=True, kw_only=True)
class Perturb:
    """Reruns of every step of a lockstep job, with noise that means nothing: a measured floor comes from
    them. `spec.noise` makes it."""

    reruns: int
    roundoff: float
    """Largest relative change of a parameter."""


@dataclass(frozen=True, kw_only=True)
class Keep:
    """States that a run job writes for lockstep jobs to start from: `states/stepNNNNNN.safetensors`."""

    steps: tuple[int, ...]
    """The state before each of these steps."""
    dtype: str
    """What its numbers are rounded to, so that every profile can start from the very same ones."""


PREPARED_BATCHES = 4
"""Batches that a `time` job makes beforehand and repeats."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How much a `time` job measures, and how much of it a `trace` job traces."""

    warmup_steps: int = 10
    windows: int = 10
    steps_per_window: int = 10
    calls: int = 50
    """Samples of dispatch_us and launch_us, each on an empty queue."""
    traced_steps: int = 10
    """Steps that a `trace` job traces after warm-up; it makes the rest of a `time` job's untraced, so that
    both end in the same state."""

    def launches(self, warmup: int, per_window: int, launch_calls: bool) -> int:
        """Launches of a whole `time` job.

        Args:
          warmup: of its warm-up.
          per_window: of each window.
          launch_calls: whether launch_us is sampled too.
        """
        return warmup + self.windows * per_window + self.calls * (2 if launch_calls else 1)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one side does next, and where the answer goes."""

    side: str
    purpose: str
    spec: RunSpec
    mode: str
    steps: int
    """The step to stop before: a run trains steps [0, steps), or from where its checkpoint stands."""
    out: str
    """The pass folder."""
    observe: tuple[str, ...] = ()
    """`phase@step`, `phase@last` or `phase@init`; see `PHASES`."""
    state: str | None = None
    """Folder of states to start from; lockstep needs one."""
    batches: str | None = None
    """Folder of materialised batches; None makes them from the problem."""
    resume: str | None = None
    """Checkpoint folder to go on from; whichever side wrote it."""
    save_every: int | None = None
    """Write a checkpoint every so many steps and after the last one, to `checkpoints/` in the pass folder."""
    keep: int | None = None
    """How many of the newest checkpoints stay; None keeps all."""
    edits: tuple[Edit, ...] = ()
    must_act: bool = False
    """Whether a `run` is refused after its first launch where an edit has nothing to act on: one that a user
    plants must; those that are tried in turn need not."""
    perturb: Perturb | None = None
    keep_states: Keep | None = None
    promote: bool = False
    """Whether a user's own casts to narrower types are computed in float64 too; for the f64 profile."""
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        if self.side not in SIDES:
            raise RuleError("A side is torch or jax.", repr(self.side))
        if self.purpose not in PURPOSES:
            raise RuleError(
                "A job's purpose is a known one.", repr(self.purpose), f"take one of {', '.join(PURPOSES)}"
            )
        if self.steps < 0:
            raise RuleError("A job does not run backwards.", f"steps = {self.steps}")
        if self.purpose == "lockstep" and self.state is None:
            raise RuleError("A lockstep job names the states it starts from.", "state is null")
        self._check_checkpoints()
        self._check_parts()
        check_mode(self.side, self.mode, self.spec.execution.device, self.spec.execution.world_size)
        for entry in self.observe:
            _, step = self.observed_at(entry)
            if self.purpose != "lockstep" and step >= (self.steps if self.purpose in TRAINING else 0):
                raise RuleError(
                    "What is observed comes to pass in the job.",
                    f"{entry} in a {self.purpose} job of {self.steps} steps",
                    "observe a step of a run job, or init",
                )

    def _check_checkpoints(self) -> None:
        if self.purpose not in TRAINING and (self.resume or self.save_every):
            raise RuleError(
                "Checkpoints are for jobs that train.",
                f"purpose {self.purpose}, resume {self.resume}, save_every {self.save_every}",
            )
        check_saving(self.save_every, self.keep)

    def _check_parts(self) -> None:
        """Refuses what only a job of another purpose or profile does."""
        if self.perturb is not None and (self.purpose != "lockstep" or self.perturb.reruns < 1):
            raise RuleError("A lockstep job is rerun, once at least.", f"{self.purpose}, {self.perturb}")
        kept = self.keep_states
        if kept is not None and (self.purpose != "run" or max(kept.steps, default=0) >= self.steps):
            raise RuleError(
                "A run job keeps states of its own steps.", f"{self.purpose} of {self.steps}, {kept}"
            )
        if self.promote and self.spec.problem.precision != "f64":
            raise RuleError("Casts are promoted in the f64 profile.", self.spec.problem.precision)
        if self.purpose == "trace" and self.timing.traced_steps < 3:
            raise RuleError(
                "A trace has three steps at least: the first is dropped, the last has no next one.",
                f"traced_steps = {self.timing.traced_steps}",
            )

    def observed_at(self, entry: str) -> tuple[str, int]:
        """Splits `phase@step` into the phase and a step number; `last` is steps - 1 and `init` is -1."""
        phase, _, step = entry.partition("@")
        number = {"last": self.steps - 1, "init": -1}.get(step, int(step) if step.isdigit() else None)
        if phase not in PHASES or number is None:
            raise RuleError(
                "An observation is phase@step.",
                repr(entry),
                f"phases: {', '.join(PHASES)}; step: a number, last or init",
            )
        return phase, number

    def write(self) -> Path:
        """Writes `job.json` into the pass folder and returns its path."""
        path = Path(self.out) / "job.json"
        record.write_json(path, codec.to_dict(self))
        return path


def check_saving(save_every: int | None, keep: int | None) -> None:
    """Refuses numbers that make no sense of how often to save and how much to keep.

    Raises:
      RuleError: one is less than 1, or something is to be kept and nothing saved.
    """
    for name, number in (("save-every", save_every), ("keep", keep)):
        if number is not None and number < 1:
            raise RuleError(
                f"--{name} is at least 1.", f"--{name} {number}", f"take 1 or more, or no --{name}"
            )
    if keep is not None and save_every is None:
        raise RuleError("What is kept was saved.", f"--keep {keep} without --save-every", "add --save-every")


def read_job(path: Path | str) -> Job:
    """Reads a job file; a misfit names the file and the field."""
    return codec.read_json(Path(path), Job)
