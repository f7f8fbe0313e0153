"""What a measured run does after its run passes: probe steps, and the jobs that floors and truths come from.

    torch   run in float64, keeping the states before the probe steps; those steps in float64; in the profile
    jax     in float64: the run, those steps (a process of its own: it works in one width);    in the profile

Every step in the profile is made again with noise. Must not: judge.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from parity.assemble import failure_message, run_passes
from parity.judge.align import Curve
from parity.judge.measured import Passes
from parity.passes import observed_phases
from parity.plan import Plan
from parity.progress import Progress
from parity.session import Held, hold
from parity.turns import Turn
from spec.errors import RuleError
from spec.job import Job, Keep, Perturb
from spec.own_optimizer import OwnOptimizer
from spec.run import SIDES, RunSpec
from spec.worker.lockstep import STATES

RERUNS = 8
MEASURED_PARAMETERS = 30_000_000
"""Larger models are judged by the table: reruns of every state would be tens of gigabytes."""
TRUTH_MODES = {"torch": "eager", "jax": "jit"}
"""How float64 is computed: without a compiler of torch's, whose rewrites are on trial too."""


_EXACT, _CASTS = "f64", "_casts"
"""In the names of the passes that compute in float64, and of those that keep a user's casts in it."""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """The jobs of a measured run, in turns and by what they are for."""

    turns: list[Turn]
    passes: Passes


def check(judge: str, plan: Plan) -> None:
    """Refuses a way to judge that cannot be had, before anything is trained.

    Raises:
      RuleError: an unknown one; or one side alone, or a model too large to be measured.
    """
    if judge not in ("table", "measured"):
        raise RuleError(
            "A run is judged by the table or measured.", f"--judge {judge}", "take --judge measured"
        )
    if judge == "table":
        return
    if len(plan.backends) != 2:
        raise RuleError("Truths and floors are measured to judge two sides.", "--judge measured, one backend")
    if plan.start.checkpoints:
        raise RuleError(
            "A measured run begins at its first step.", "--judge measured --resume", "leave one out"
        )
    if isinstance(plan.spec.problem.optimizer, OwnOptimizer):
        raise RuleError(
            "Steps are measured from states that hold all of them.",
            "the optimizer is the user's own, and so is its state",
            "take --judge table",
        )
    size = plan.spec.problem.num_params
    if size > MEASURED_PARAMETERS:
        raise RuleError(
            f"A measured run has a model of at most {MEASURED_PARAMETERS:,} parameters.",
            f"{size:,}",
            "take --judge table, or a smaller size of the same model",
        )


def measure(
    plan: Plan, folder: Path, held: Sequence[Held], progress: Progress
) -> tuple[list[Held], Passes | None]:
    """Starts from the finished run passes; the launches and what they left, None where one failed.

    Where float64 cannot be had, a run is measured without it: first without the casts of a user's code in
    it, then without truths. The launch that showed it is told in a note; it is no failure of the run.
    """
    runs = run_passes(held)
    if len(runs) != 2 or any(item.ended.how != "done" for item in held):
        return [], None
    done, launches = sum(len(item.turn.jobs) for item in held), len(held)
    probes = probe_steps(plan.spec, runs["torch"].curve)
    kept: list[Held] = []
    notes: tuple[str, ...] = ()
    for wanted in (_EXACT + _CASTS, _EXACT, "") if plan.pair else (_EXACT, ""):
        measuring = plan_measuring(plan, folder, done, probes, wanted, notes)
        more = hold(plan, measuring.turns, folder, progress, done=launches)
        last = more[-1]
        if last.ended.how == "done":
            return [*kept, *more], measuring.passes
        failed = last.ended.failed_pass
        if last.ended.how != "error" or failed is None or _EXACT not in failed.name:
            return [*kept, *more], None
        kept += more[:-1]
        done, launches = done + sum(len(turn.jobs) for turn in measuring.turns), launches + len(more)
        notes = (*notes, f"without {failed.name.partition('_')[2]}: {failure_message(last)}")
        progress.say(notes[-1])
    return kept, None


def probe_steps(spec: RunSpec, curve: Curve) -> dict[int, str]:
    """The steps that are looked at closely, and why: 0, 1, the end of warm-up, a clipped one, the last.

    Args:
      curve: of a run pass, whose norms tell where clipping acts.
    """
    problem, last = spec.problem, curve.num_steps - 1
    chosen = [(0, "the first step"), (1, "the first with moments")]
    warmup = problem.schedule.warmup_steps
    if warmup:
        chosen.append((warmup, "the end of warm-up"))
    limit = problem.optimizer.max_norm
    clipped = [step for step in range(2, last) if limit and curve.grad_norm[step] > limit]
    if clipped:
        chosen.append((clipped[len(clipped) // 2], "a clipped step"))
    chosen.append((last, "the last step"))
    return {step: why for step, why in reversed(chosen) if step <= last}


def plan_measuring(
    plan: Plan,
    folder: Path,
    done: int,
    probes: dict[int, str],
    wanted: str = _EXACT,
    notes: tuple[str, ...] = (),
) -> Measuring:
    """The jobs of a measured run.

    Args:
      done: passes that the run folder already has.
      wanted: `f64_casts` for truths, and beside them float64 with the casts of a user's code in it; `f64` for
        truths alone; empty for neither.
      notes: why less is wanted than could be.
    """
    spec, exact = plan.spec, _float64(plan) if wanted else plan
    numbers = iter(range(done + 1, done + 100))
    look = tuple(f"{phase}@{step}" for step in sorted(probes) for phase in ("act", *observed_phases(plan)))

    def job(side: str, what: str, of: Plan, suffix: str = _EXACT, **changes: object) -> Job:
        truth = of is not plan
        made = Job(
            side=side,
            purpose="run",
            spec=of.spec,
            mode=TRUTH_MODES[side] if truth else spec.execution.mode(side),
            steps=spec.problem.steps,
            out=str(folder / "passes" / f"{next(numbers):03d}_{side}_{what}{'_' + suffix if truth else ''}"),
            edits=plan.edits.get(side, ()),
            promote=truth and suffix == _EXACT,
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    keep = Keep(steps=tuple(sorted(probes)), dtype=spec.problem.profile.master)
    free = {"torch": job("torch", "reference", exact, keep_states=keep)}
    steps_of = {"purpose": "lockstep", "state": str(Path(free["torch"].out) / STATES), "observe": look}
    noise = Perturb(reruns=RERUNS, roundoff=spec.problem.profile.unit_roundoff)
    truths, casts = {}, {}
    if wanted:
        free["jax"] = job("jax", "run", exact)
        truths = {side: job(side, "lockstep", exact, **steps_of) for side in SIDES}
    if wanted.endswith(_CASTS):
        casts = {side: job(side, "lockstep", exact, wanted, **steps_of) for side in SIDES}
    lockstep = {side: job(side, "lockstep", plan, **steps_of, perturb=noise) for side in SIDES}
    in_float64 = {side: [of[side] for of in (free, truths, casts) if side in of] for side in SIDES}
    torch, jax = [*in_float64["torch"], lockstep["torch"]], in_float64["jax"]
    order = [("torch", torch), ("jax", jax), ("jax", [lockstep["jax"]])]
    return Measuring(
        turns=[Turn(side=side, jobs=tuple(jobs)) for side, jobs in order if jobs],
        passes=Passes(
            probes=probes,
            lockstep=_folders(lockstep),
            truths=_folders(truths),
            casts=_folders(casts),
            free=_folders(free) if wanted else {},
            notes=notes,
        ),
    )


def _folders(jobs: dict[str, Job]) -> dict[str, Path]:
    return {side: Path(job.out) for side, job in jobs.items()}


def _float64(plan: Plan) -> Plan:
    problem = replace(plan.spec.problem, precision="f64")
    return replace(plan, spec=replace(plan.spec, problem=problem))
