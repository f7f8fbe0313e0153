"""`parity run` and `parity train`: hold the run, judge it where there are two sides, record, print."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from parity import against, assemble, measuring, traced, turns
from parity.beginning import begin
from parity.judge.align import Measured
from parity.judge.chain import Chain, describe
from parity.judge.measured import Passes
from parity.judge.verdict import EXIT_CODES, gravest, judge, reasons
from parity.options import Run, Train
from parity.pairs.settle import Settled
from parity.plan import make_plan
from parity.progress import Progress
from parity.report import deliver
from parity.report.result import SCHEMA_VERSION, Handoff, Numerics, Result, Speed, Verdict
from parity.session import Held, hold
from spec.errors import ExitCode
from spec.job import Timing

TIMING = {
    "cpu": Timing(warmup_steps=5, windows=10, steps_per_window=5, calls=20),
    "cuda": Timing(warmup_steps=20, windows=20, steps_per_window=20, calls=100),
}
"""How much a run measures: enough for an interval; `parity bench` measures more."""


def run(options: Run | Train, argv: Sequence[str]) -> ExitCode:
    """Trains, judges, times; writes the run folder and prints it. Returns the exit code.

    Raises:
      RuleError: before anything starts.
    """
    result, folder = train(options, argv, Progress())
    deliver.deliver(result, folder, options.json)
    deliver.tell_failures(result.launches, folder)
    return ExitCode(result.exit_code)


def train(options: Run | Train, argv: Sequence[str], progress: Progress) -> tuple[Result, Path]:
    """Trains, judges and times; the result, not yet written anywhere, and the run folder.

    Raises:
      RuleError: before anything is trained.
    """
    started = time.monotonic()
    plan = make_plan(options)
    deliver.check_target(options.json)
    saved = against.find(options, plan) if isinstance(options, Run) and not plan.pair else None
    if isinstance(options, Run):
        measuring.check(options.judge, plan)
        traced.check(options.trace, options.time)
    folder, settled = begin(plan, options, argv, progress)
    if isinstance(options, Run) and plan.pair is not None:
        # The size of a pair's models is known from here on.
        measuring.check(options.judge, settled.plan)
        saved = against.find(options, settled.plan, folder)
    timing = TIMING[plan.spec.execution.device] if options.time else None
    passes = [] if settled.refusals else turns.judged(settled.plan, folder, timing)
    held = hold(settled.plan, passes, folder, progress)
    if isinstance(options, Run) and options.trace and timing and not settled.refusals:
        own = [(side, None) for side in plan.backends]
        held += traced.hold_traces(settled.plan, folder, own, timing, held, progress)
    measured = None
    if isinstance(options, Run) and options.judge == "measured":
        more, measured = measuring.measure(settled.plan, folder, held, progress)
        held += more
    command = "train" if isinstance(options, Train) else "run"
    result = _result(command, settled, folder, held, measured, started)
    against.add(result, saved, held)
    return result, folder


def _result(
    command: str,
    settled: Settled,
    folder: Path,
    held: Sequence[Held],
    measured: Passes | None,
    started: float,
) -> Result:
    judging, plan = time.monotonic(), settled.plan
    code, message = assemble.failure(held)
    passes = assemble.run_passes(held)
    judged, handoff = _judged(passes, assemble.handed_off(held), measured)
    numerics = gravest(judged) if judged else None
    found, said = verdict(code, numerics, settled)
    first = [settled.doubt] if settled.doubt and said == "INCONCLUSIVE" else []
    # Each once: a doubt is among the notes too.
    told = list(dict.fromkeys([*first, *settled.refusals, *reasons(judged), *settled.notes]))
    speed, launches = assemble.speed(held), assemble.launches(held)
    now = time.monotonic()
    return Result(
        schema_version=SCHEMA_VERSION,
        command=command,  # type: ignore[arg-type]
        verdict=said,
        exit_code=int(found),
        reasons=[message] if message else told,
        runs=[assemble.run_ref(folder, plan)],
        curves=assemble.curves(held),
        numerics=numerics,
        comparisons=judged,
        speed=speed,
        capture=assemble.capture(held),
        bench=[],
        launches=launches,
        seconds=assemble.seconds(launches, now - started, now - judging),
        unmeasured=_unmeasured(numerics, speed, len(plan.backends), settled),
        warnings=assemble.warnings(held, folder),
        handoff=handoff,
        pair=settled.record,
    )


def _judged(
    passes: Mapping[str, Measured], chain: Chain | None, measured: Passes | None
) -> tuple[list[Numerics], Handoff | None]:
    """The sides against each other, and the run that changed sides against each of them."""
    if len(passes) < 2:
        return [], None
    judged = [judge(passes["torch"], passes["jax"], passes=measured)]
    if chain is None:
        return judged, None
    judged += [judge(chain, whole, chain.handed_over()) for whole in passes.values()]
    return judged, describe(chain, passes)


def _unmeasured(
    numerics: Numerics | None, speed: Speed | None, sides: int, settled: Settled
) -> dict[str, str]:
    if settled.refusals:
        return dict.fromkeys(("numerics", "speed"), "nothing was run: tensors without a counterpart")
    missing = {}
    if numerics is None:
        missing["numerics"] = "one side runs alone" if sides == 1 else "a side did not finish its run pass"
    if speed is None:
        missing["speed"] = "no time pass was asked for, or none was finished"
    return missing


def verdict(code: ExitCode, numerics: Numerics | None, settled: Settled) -> tuple[ExitCode, Verdict | None]:
    """A failed launch outweighs what the finished ones show."""
    if code:
        return code, "FAILED"
    if settled.refusals:
        return ExitCode.NOT_COMPARABLE, "NOT_COMPARABLE"
    if numerics is None:
        return ExitCode.SAME, None
    if numerics.verdict == "DIFFERENT" and settled.doubt:
        # Other weights in a right port differ as a mistake does.
        return ExitCode.INCONCLUSIVE, "INCONCLUSIVE"
    return EXIT_CODES[numerics.verdict], numerics.verdict
