"""The plan of a run for several seeds: the same problem with other first values and other rows.

Of a preset, `spec` draws both. A pair makes its own batches, the same for every seed; its first values come
from the side that it names, which is described again for all seeds in one launch. Must not: train.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from parity.pairs import settle
from parity.pairs.settle import Settled
from parity.plan import Plan
from parity.progress import Progress
from spec.description import DESCRIPTION, INITIAL
from spec.errors import RuleError
from spec.weights import save_tensors


def for_seeds(settled: Settled, seeds: Sequence[int], folder: Path, progress: Progress) -> dict[int, Plan]:
    """The plan of each seed; `folder` is the run's.

    Raises:
      RuleError: two seeds of a pair begin with the same values, to the bit.
      SideFailed: a process crashed.
    """
    plans = {seed: _with_seed(settled.plan, seed) for seed in seeds}
    if settled.plan.pair is None:
        return plans
    place = folder / settle.PAIR / "seeds"
    described = _describe(plans, settled, folder, place, progress)
    found: dict[bytes, int] = {}
    for seed, plan in plans.items():
        initial = place / f"{seed:04d}" / INITIAL
        own = described.get(seed, {})
        save_tensors(initial, settle.initial_values(plan, settled.plan.pair.pair.init, own, settled.match))
        other = found.setdefault(initial.read_bytes(), seed)
        if other != seed:
            raise RuleError(
                "Every seed of a pair begins with values of its own.",
                f"seeds {other} and {seed} begin alike",
                'build() takes no seed: let pair.py say init="torch" or init="spec"',
            )
        plans[seed] = settle.with_files(plan, initial=str(initial))
    return plans


def _with_seed(plan: Plan, seed: int) -> Plan:
    """As `--seed` does it."""
    problem = dataclasses.replace(plan.spec.problem, seed_weights=seed, seed_data=seed + 1)
    return replace(plan, spec=replace(plan.spec, problem=problem))


def _describe(
    plans: dict[int, Plan], settled: Settled, folder: Path, place: Path, progress: Progress
) -> dict[int, dict[str, Path]]:
    """The folder of each side's description, by seed; new ones of the side whose first values are taken."""
    assert settled.plan.pair is not None
    init = settled.plan.pair.pair.init
    # Described in float64, or again in float32: the last side has written in the one that was good for both.
    written = next((folder / settle.PAIR).glob(f"*/{settled.plan.backends[-1]}/{DESCRIPTION}"))
    precision = written.parent.parent.name
    first = {side: folder / settle.PAIR / precision / side for side in settled.plan.backends}
    if init == "spec":
        return dict.fromkeys(plans, first)
    asked = {seed: settle.described_as(plan, precision) for seed, plan in plans.items()}
    if init == "jax":
        asked = {seed: settle.with_files(plan, described=str(first["torch"])) for seed, plan in asked.items()}
    jobs = {
        seed: settle.describe_job(plan, init, place / f"{seed:04d}" / init) for seed, plan in asked.items()
    }
    progress.say(f"{init}: describe {settled.plan.spec.name} for {len(jobs)} seeds")
    settle.do(list(jobs.values()), settled.plan.timeout_s)
    return {seed: first | {init: Path(job.out)} for seed, job in jobs.items()}
