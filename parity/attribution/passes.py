"""The same step from the same state in every way that this machine has: one lockstep pass each.

The torch side runs in float64 up to the step and keeps the state before it. What cannot be had is missing
with a reason. One process a side makes all of it, with the micro-batches that the run's processes had. Must
not: compare.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from parity.explain.settings import Told, as_it_was
from parity.explain.worker import Worker
from parity.judge.align import Measured
from spec.errors import RuleError
from spec.job import Job, Keep, Perturb
from spec.run import RunSpec
from spec.worker.lockstep import STATES

RERUNS = 8
COMPILED = {"torch": "inductor", "jax": "jit"}
TRUTH = "float64"
PROMOTED = "float64, casts promoted"
WRITTEN = "roundings as written"
"""A compiled step whose compiler may not leave out a rounding, where the run planted that it may."""
EXCESS = "excess_precision"
_PHASES = ("act", "grad", "clipped", "m", "v", "param", "buffer")
_GRAPHS = ("graph", "graph+inductor")
_NO_GPU = "no GPU: there is no graph to capture"


@dataclass
class Made:
    """The passes of one step, by `side way`."""

    step: int
    passes: dict[str, Measured] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Why a way could not be had."""


class Ways:
    """Makes passes; to be closed on every way out.

    Args:
      step: the one that is looked at.
      out: folder of the passes.
      say: is told what is going on.
    """

    def __init__(
        self, told: Told, step: int, out: Path, timeout_s: float, say: Callable[[str], None]
    ) -> None:
        self._told, self._out, self._timeout_s, self._say = told, out, timeout_s, say
        device = told.spec.execution.device
        self._specs: dict[bool, RunSpec] = {}
        for exact in (False, True):
            spec = as_it_was(told, "f64" if exact else told.spec.problem.precision)
            self._specs[exact] = replace(spec, execution=replace(spec.execution, device=device))
        self._states = out / "states_of_torch" / STATES
        self._kept: Worker | None = None
        self._key: tuple[str, bool] | None = None
        self.made = Made(step)

    def make(self) -> Made:
        """Every way.

        Raises:
          RuleError, SideFailed: one that nothing can be said without could not be made.
        """
        step, profile = self.made.step, self._specs[False].problem.profile
        keep = Keep(steps=(step,), dtype=profile.master)
        self._say(f"torch: the run in float64 up to step {step}, then that step in every mode")
        run = self._job("torch", "eager", True)
        own_casts = self._told.pair is not None
        out = str(self._states.parent)
        self._worker("torch", exact=True).do(replace(run, out=out, keep_states=keep, promote=own_casts))
        noise = Perturb(reruns=RERUNS, roundoff=profile.unit_roundoff)
        jit = self._jit()
        self._truths("torch", "eager", "eager")
        self._needed("torch", "eager", "eager", perturb=noise)
        self._optional("torch", "inductor", "inductor")
        for mode in _GRAPHS:
            if self._told.spec.execution.device == "cuda":
                self._optional("torch", mode, mode)
            else:
                self.made.missing[f"torch {mode}"] = _NO_GPU
        self._say(f"jax: that step in float64, without a compiler, and in mode {jit}")
        self._needed("jax", "jit", jit, perturb=noise)
        self._optional("jax", "nojit", "nojit")
        self._truths("jax", "nojit", jit)
        return self.made

    def without_excess(self, side: str) -> bool:
        """Adds the side's compiled step without a planted leave to drop roundings; whether there was one."""
        edits = self._told.edits[side]
        if not any(edit.name == EXCESS and edit.value for edit in edits):
            return False
        kept = tuple(edit for edit in edits if edit.name != EXCESS)
        mode = self._jit() if side == "jax" else "inductor"
        self._optional(side, f"{COMPILED[side]}, {WRITTEN}", mode, edits=kept)
        return True

    def compiled_truth(self, side: str) -> str:
        """Adds the side's compiled step in float64, a user's casts as they stand; its name."""
        way = f"{COMPILED[side]} in {TRUTH}"
        self._optional(side, way, self._jit() if side == "jax" else "inductor", exact=True)
        return f"{side} {way}"

    def close(self) -> None:
        """Ends the process, if there is one."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _jit(self) -> str:
        mode = self._told.spec.execution.jax_mode
        return mode if mode.startswith("jit") else "jit"

    def _truths(self, side: str, plain: str, usual: str) -> None:
        """Float64 with a user's casts as they stand, in the mode that compiles nothing, and without them.
        Code that names a narrow type may not run in float64 as it stands; a preset has no casts."""
        if self._told.pair is None:
            self._needed(side, TRUTH, plain, exact=True)
            return
        self._optional(side, TRUTH, plain, exact=True)
        self._optional(side, PROMOTED, usual, exact=True, promote=True)

    def _needed(self, side: str, way: str, mode: str, exact: bool = False, **changes: object) -> None:
        job = replace(self._lockstep(side, way, mode, exact), **changes)  # type: ignore[arg-type]
        folder = self._worker(side, exact).do(job)
        self.made.passes[f"{side} {way}"] = Measured(f"{side} {way}", folder)

    def _optional(self, side: str, way: str, mode: str, exact: bool = False, **changes: object) -> None:
        try:
            self._needed(side, way, mode, exact, **changes)
        except RuleError as error:
            self.made.missing[f"{side} {way}"] = error.numbers
            return
        ran = self.made.passes[f"{side} {way}"].manifest["mode_ran"]
        if ran != mode:
            reasons = self.made.passes.pop(f"{side} {way}").manifest["reasons"]
            self.made.missing[f"{side} {way}"] = reasons.get("capture", f"it ran as {ran}")

    def _worker(self, side: str, exact: bool) -> Worker:
        """One process at a time: two frameworks on one GPU take memory from each other.

        A JAX process works in one width."""
        key = side, exact and side == "jax"
        if self._key != key:
            self.close()
        if self._kept is None:
            log = self._out / f"{side}.log"
            self._kept = Worker(side, log, self._timeout_s, self._told.spec.execution.device)
            self._key = key
        return self._kept

    def _lockstep(self, side: str, way: str, mode: str, exact: bool) -> Job:
        look = tuple(f"{phase}@{self.made.step}" for phase in _PHASES)
        name = "".join(letter if letter.isalnum() else "_" for letter in f"{side}_{way}")
        job = self._job(side, mode, exact)
        return replace(
            job, purpose="lockstep", state=str(self._states), observe=look, out=str(self._out / name)
        )

    def _job(self, side: str, mode: str, exact: bool) -> Job:
        return Job(
            side=side,
            purpose="run",
            spec=self._specs[exact],
            mode=mode,
            steps=self.made.step + 1,
            out=str(self._out),
            edits=self._told.edits[side],
        )
