"""What a measured run does after its run passes: probe steps, and the jobs that floors and truths come from.

    torch   run in float64, keeping the states before the probe steps; the same steps in float64; in the profile
    jax     in float64: the run and the steps (a process of its own: it works in one width);  in the profile

Every step in the profile is made again with noise. Must not: start anything, or judge.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from parity.judge.align import Curve
from parity.plan import Plan
from parity.turns import Turn, observed_phases
from spec.errors import RuleError
from spec.job import Job, Keep, Perturb
from spec.protocol import STATES
from spec.run import RunSpec

RERUNS = 8
MEASURED_PARAMETERS = 30_000_000
"""Larger models are judged by the table: reruns of every state would be tens of gigabytes."""
TRUTH_MODES = {"torch": "eager", "jax": "jit"}
"""How float64 is computed: without a compiler of torch's, whose rewrites are on trial too."""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """The jobs of a measured run, in turns and by what they are for."""

    turns: list[Turn]
    probes: dict[int, str]
    """Probe steps and why each was chosen."""
    free: dict[str, Path]
    """The whole run in float64, by side."""
    truths: dict[str, Path]
    """The probe steps in float64, by side."""
    lockstep: dict[str, Path]
    """The probe steps in the profile, by side."""


def refuse(plan: Plan) -> None:
    """Refuses a measured run that cannot be had, before anything starts.

    Raises:
      RuleError: one side alone, or a model too large.
    """
    size = sum(row.size for row in plan.spec.problem.parameter_table()) if not plan.pair else 0
    if len(plan.backends) != 2:
        raise RuleError("Truths and floors are measured to judge two sides.", "--judge measured, one backend")
    if size > MEASURED_PARAMETERS:
        raise RuleError(
            f"A measured run has a model of at most {MEASURED_PARAMETERS:,} parameters.",
            f"{size:,}",
            "take --judge table, or a smaller size of the same model",
        )


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


def plan_measuring(plan: Plan, folder: Path, done: int, probes: dict[int, str]) -> Measuring:
    """The jobs of a measured run.

    Args:
      done: passes that the run folder already has.
    """
    exact = _float64(plan)
    spec, steps = plan.spec, plan.spec.problem.steps
    numbers = iter(range(done + 1, done + 100))
    look = tuple(f"{phase}@{step}" for step in sorted(probes) for phase in ("act", *observed_phases(plan)))

    def job(side: str, what: str, of: Plan, **changes: object) -> Job:
        made = Job(
            side=side,
            purpose="run",
            spec=of.spec,
            mode=TRUTH_MODES[side] if of is exact else spec.execution.mode(side),
            steps=steps,
            out=str(folder / "passes" / f"{next(numbers):03d}_{side}_{what}"),
            edits=plan.edits.get(side, ()),
            promote=of is exact,
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    keep = Keep(steps=tuple(sorted(probes)), dtype=spec.problem.profile.master)
    reference = job("torch", "run_f64", exact, keep=keep)
    states = str(Path(reference.out) / STATES)
    steps_of = {"purpose": "lockstep", "state": states, "observe": look}
    noise = Perturb(reruns=RERUNS, roundoff=spec.problem.profile.unit_roundoff)
    truths = {"torch": job("torch", "lockstep_f64", exact, **steps_of)}
    lockstep = {"torch": job("torch", "lockstep", plan, **steps_of, perturb=noise)}
    free = {"torch": reference, "jax": job("jax", "run_f64", exact)}
    truths["jax"] = job("jax", "lockstep_f64", exact, **steps_of)
    lockstep["jax"] = job("jax", "lockstep", plan, **steps_of, perturb=noise)
    return Measuring(
        turns=[
            Turn(side="torch", jobs=(reference, truths["torch"], lockstep["torch"])),
            Turn(side="jax", jobs=(free["jax"], truths["jax"])),
            Turn(side="jax", jobs=(lockstep["jax"],)),
        ],
        probes=probes,
        free=_folders(free.items()),
        truths=_folders(truths.items()),
        lockstep=_folders(lockstep.items()),
    )


def _folders(jobs: Iterable[tuple[str, Job]]) -> dict[str, Path]:
    return {side: Path(job.out) for side, job in jobs}


def _float64(plan: Plan) -> Plan:
    problem = replace(plan.spec.problem, precision="f64")
    return replace(plan, spec=replace(plan.spec, problem=problem))
