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
from parity.plan import Plan
from parity.progress import Progress
from parity.session import Held, hold
from parity.turns import Turn, observed_phases
from spec.errors import RuleError
from spec.job import Job, Keep, Perturb
from spec.protocol import STATES
from spec.run import SIDES, RunSpec

RERUNS = 8
MEASURED_PARAMETERS = 30_000_000
"""Larger models are judged by the table: reruns of every state would be tens of gigabytes."""
TRUTH_MODES = {"torch": "eager", "jax": "jit"}
"""How float64 is computed: without a compiler of torch's, whose rewrites are on trial too."""


_EXACT = "f64"
"""In the names of the passes that compute in float64."""


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
        raise RuleError("A run is judged by the table or measured.", f"--judge {judge}")
    if judge == "table":
        return
    if len(plan.backends) != 2:
        raise RuleError("Truths and floors are measured to judge two sides.", "--judge measured, one backend")
    size = sum(row.size for row in plan.spec.problem.parameter_table())
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

    A model that cannot be computed in float64 is measured without truths.
    """
    runs = run_passes(held)
    if len(runs) != 2 or any(item.ended.how != "done" for item in held):
        return [], None
    done = sum(len(item.turn.jobs) for item in held)
    probes = probe_steps(plan.spec, runs["torch"].curve)
    measuring = plan_measuring(plan, folder, done, probes)
    more = hold(plan, measuring.turns, folder, progress, done=len(held))
    failed = more[-1].ended
    if failed.how == "done":
        return more, measuring.passes
    if failed.how != "error" or failed.failed_pass is None or not failed.failed_pass.name.endswith(_EXACT):
        return more, None
    note = f"float64 could not be had: {failure_message(more[-1])}"
    progress.say(note)
    done += sum(len(turn.jobs) for turn in measuring.turns)
    measuring = plan_measuring(plan, folder, done, probes, note)
    again = hold(plan, measuring.turns, folder, progress, done=len(held) + len(more))
    # The launch that could not compute in float64 is told in the note; it is no failure of the run.
    kept = [*more[:-1], *again]
    return kept, measuring.passes if again[-1].ended.how == "done" else None


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


def plan_measuring(plan: Plan, folder: Path, done: int, probes: dict[int, str], note: str = "") -> Measuring:
    """The jobs of a measured run.

    Args:
      done: passes that the run folder already has.
      note: why it goes without float64; empty where it goes with it.
    """
    exact = plan if note else _float64(plan)
    spec, steps = plan.spec, plan.spec.problem.steps
    numbers = iter(range(done + 1, done + 100))
    look = tuple(f"{phase}@{step}" for step in sorted(probes) for phase in ("act", *observed_phases(plan)))

    def job(side: str, what: str, of: Plan, **changes: object) -> Job:
        truth = of is not plan
        made = Job(
            side=side,
            purpose="run",
            spec=of.spec,
            mode=TRUTH_MODES[side] if truth else spec.execution.mode(side),
            steps=steps,
            out=str(folder / "passes" / f"{next(numbers):03d}_{side}_{what}{'_' + _EXACT if truth else ''}"),
            edits=plan.edits.get(side, ()),
            promote=truth,
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    keep = Keep(steps=tuple(sorted(probes)), dtype=spec.problem.profile.master)
    reference = job("torch", "reference", exact, keep=keep)
    steps_of = {"purpose": "lockstep", "state": str(Path(reference.out) / STATES), "observe": look}
    noise = Perturb(reruns=RERUNS, roundoff=spec.problem.profile.unit_roundoff)
    turns = {"torch": [reference], "jax": []}
    truths: dict[str, Job] = {}
    free = {"torch": reference}
    if not note:
        free["jax"] = job("jax", "run", exact)
        truths = {side: job(side, "lockstep", exact, **steps_of) for side in SIDES}
        turns = {"torch": [reference, truths["torch"]], "jax": [free["jax"], truths["jax"]]}
    lockstep = {side: job(side, "lockstep", plan, **steps_of, perturb=noise) for side in SIDES}
    turns["torch"].append(lockstep["torch"])
    order = [("torch", turns["torch"]), ("jax", turns["jax"]), ("jax", [lockstep["jax"]])]
    return Measuring(
        turns=[Turn(side=side, jobs=tuple(jobs)) for side, jobs in order if jobs],
        passes=Passes(
            probes=probes,
            lockstep=_folders(lockstep),
            truths=_folders(truths),
            free={} if note else _folders(free),
            notes=(note,) if note else (),
        ),
    )


def _folders(jobs: dict[str, Job]) -> dict[str, Path]:
    return {side: Path(job.out) for side, job in jobs.items()}


def _float64(plan: Plan) -> Plan:
    problem = replace(plan.spec.problem, precision="f64")
    return replace(plan, spec=replace(plan.spec, problem=problem))
