"""`parity equivalence`: states a test, trains its seeds on both sides, and says what the losses show.

Every pass is a run job as `parity run` makes them, but for the tensors, which are not written. One launch a
side does all seeds that are missing. Must not: hold the rule; `rule.py` does.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from parity import assemble, folders
from parity.beginning import begin
from parity.equivalence import statement
from parity.equivalence.conclusion import conclude, untested
from parity.equivalence.statement import Statement
from parity.judge.verdict import EXIT_CODES
from parity.options import Equivalence as Options
from parity.options import Run
from parity.pairs.reseed import for_seeds
from parity.pairs.settle import Settled
from parity.passes import Passes
from parity.plan import Plan, make_plan
from parity.progress import Progress
from parity.report import deliver
from parity.report.result import SCHEMA_VERSION, Result, Verdict
from parity.session import Held, hold
from parity.turns import Turn
from spec.environment import describe_environment
from spec.errors import ExitCode
from spec.run import SIDES

_WORDS: dict[str | None, Verdict] = {
    "EQUIVALENT": "SAME",
    "DIFFERENT": "DIFFERENT",
    "INCONCLUSIVE": "INCONCLUSIVE",
    None: "NOT_COMPARABLE",
}


def equivalence(options: Options, argv: Sequence[str]) -> ExitCode:
    """Tests, writes the run folder and prints it. Returns the exit code.

    Raises:
      RuleError: before any seed is trained.
    """
    started, progress = time.monotonic(), Progress()
    margin = statement.parse_margin(options.margin)
    statement.check_seeds(options.seeds)
    deliver.check_target(options.json)
    plan = make_plan(_as_run(options))
    stated = _state(plan, options, margin)
    earlier = _earlier(options, stated, plan.spec.execution.device)
    folder, settled = begin(plan, options, argv, progress, stated.told())
    held: list[Held] = []
    if not settled.refusals:
        if earlier is not None:
            progress.say(f"{_take_over(earlier, folder, stated)} passes of {earlier.name} are taken over")
        plans = for_seeds(settled, stated.seeds, folder, progress)
        held = hold(settled.plan, _turns(plans, folder), folder, progress)
    result = _result(settled, stated, folder, held, started)
    deliver.deliver(result, folder, options.json)
    deliver.tell_failures(result.launches, folder)
    return ExitCode(result.exit_code)


def _as_run(options: Options) -> Run:
    """The options of a run of one seed."""
    shared = {name: getattr(options, name) for name in Run.__dataclass_fields__ if hasattr(options, name)}
    return Run(**shared | {"resume": None, "time": False})


def _state(plan: Plan, options: Options, margin: float) -> Statement:
    first, execution = plan.spec.problem.seed_weights, plan.spec.execution
    modes = ", ".join(f"{side} {execution.mode(side)}" for side in SIDES)
    return Statement(
        margin=margin,
        seeds=tuple(range(first, first + options.seeds)),
        problem=plan.spec.problem,
        execution=f"{execution.world_size} x {execution.device}, {modes}",
        edits=options.edit,
        files=statement.hash_files(plan.pair),
    )


def _earlier(options: Options, stated: Statement, device: str) -> Path | None:
    """The run folder of the test that is gone on with."""
    if options.resume is None:
        return None
    folder = folders.find(options.resume, Path(options.out), folders.PASSES)
    statement.refuse_another(statement.read_statement(folder), stated, folder)
    before = folders.read_run(folder)["environment"]
    statement.refuse_other_machine(before, describe_environment(), device, folder)
    return folder


def _take_over(earlier: Path, folder: Path, stated: Statement) -> int:
    """Copies the passes that an earlier run of the same test finished; how many."""
    taken = 0
    for seed in stated.seeds:
        for side in SIDES:
            done = _pass(earlier, seed, side)
            if (done / "done.json").exists():
                shutil.copytree(done, _pass(folder, seed, side))
                taken += 1
    return taken


def _pass(folder: Path, seed: int, side: str) -> Path:
    return folder / "passes" / f"seed{seed:04d}_{side}_run"


def _turns(plans: dict[int, Plan], folder: Path) -> list[Turn]:
    """One launch a side with the passes that are missing."""
    jobs = [
        # What tensors a seed ends with is no matter.
        replace(Passes(plan, folder).run(side), out=str(_pass(folder, seed, side)), observe=())
        for side in SIDES
        for seed, plan in plans.items()
    ]
    missing = [job for job in jobs if not (Path(job.out) / "done.json").exists()]
    turns = [Turn(side=side, jobs=tuple(job for job in missing if job.side == side)) for side in SIDES]
    return [turn for turn in turns if turn.jobs]


def _result(
    settled: Settled, stated: Statement, folder: Path, held: Sequence[Held], started: float
) -> Result:
    judging = time.monotonic()
    code, message = assemble.failure(held)
    passes = {seed: {side: _pass(folder, seed, side) for side in SIDES} for seed in stated.seeds}
    refusals, found = settled.refusals, None
    if not (code or refusals):
        refusals, found = conclude(stated, passes)
    verdict: Verdict = "FAILED" if code else _WORDS[found.outcome if found else None]
    reasons = [*refusals, *(found.notes if found else ()), *settled.notes]
    if code:
        reasons = [f"{message}; what is finished is kept: type the same with --resume {folder.name[:4]}"]
    launches, now = assemble.launches(held), time.monotonic()
    return Result(
        schema_version=SCHEMA_VERSION,
        command="equivalence",
        verdict=verdict,
        exit_code=int(code or EXIT_CODES[verdict]),
        reasons=reasons,
        runs=[assemble.run_ref(folder, settled.plan)],
        curves=assemble.curves(held),
        numerics=None,
        comparisons=[],
        speed=None,
        capture=assemble.capture(held),
        bench=[],
        launches=launches,
        seconds=assemble.seconds(launches, now - started, now - judging),
        unmeasured=dict.fromkeys(("numerics", "speed"), "an equivalence test looks at last losses alone"),
        pair=settled.record,
        equivalence=found or untested(stated, message or "; ".join(refusals[:1])),
    )
