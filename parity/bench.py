"""`parity bench`: our own step beside baseline steps, every contender twice, in order and in reverse."""

import time
from collections.abc import Sequence
from pathlib import Path

from parity import assemble, traced, turns
from parity.beginning import begin
from parity.options import Bench
from parity.plan import Plan, make_plan, parse_baselines, parse_modes
from parity.progress import Progress
from parity.report import deliver
from parity.report.result import SCHEMA_VERSION, BenchRow, Result
from parity.session import Held, hold
from parity.speed import statistics
from parity.speed.figures import TimePass, side_speed
from parity.training import TIMING
from spec.errors import ExitCode, RuleError
from spec.job import Timing

Contender = tuple[str, str]
"""A side and the mode of its step."""


def bench(options: Bench, argv: Sequence[str]) -> ExitCode:
    """Times all contenders; writes the run folder and prints the table. Returns the exit code.

    Raises:
      RuleError: before anything starts.
    """
    started, progress = time.monotonic(), Progress()
    plan = make_plan(options)
    contenders = _contenders(plan, options)
    timing = _timing(plan, options)
    deliver.check_target(options.json)
    folder, settled = begin(plan, options, argv, progress)
    if settled.refusals:
        raise RuleError(
            "The models of a pair correspond, tensor by tensor.",
            "; ".join(settled.refusals[:4]),
            f"parity run {options.preset} lists all of them",
        )
    plan = settled.plan
    held = hold(plan, turns.timed(plan, folder, contenders, timing), folder, progress)
    if options.trace:
        held += traced.hold_traces(plan, folder, contenders, timing, held, progress)
    result = _result(plan, folder, held, contenders, started)
    deliver.deliver(result, folder, options.json)
    deliver.tell_failures(result.launches, folder)
    return ExitCode(result.exit_code)


def _contenders(plan: Plan, options: Bench) -> list[Contender]:
    """The modes of each side, then its baselines, side by side so that neighbours share a launch."""
    modes = parse_modes(options.mode, plan.spec.execution.device)
    ours = [(side, mode) for side in plan.backends for mode in modes[side]]
    chosen = dict.fromkeys([*ours, *parse_baselines(options.baselines, plan.backends)])
    return sorted(chosen, key=lambda contender: plan.backends.index(contender[0]))


def _timing(plan: Plan, options: Bench) -> Timing:
    if options.windows < 1 or options.steps_per_window < 1:
        raise RuleError(
            "A benchmark measures at least one window of one step.",
            f"--windows {options.windows} --steps-per-window {options.steps_per_window}",
        )
    usual = TIMING[plan.spec.execution.device]
    return Timing(
        warmup_steps=usual.warmup_steps,
        windows=options.windows,
        steps_per_window=options.steps_per_window,
        calls=usual.calls,
    )


def _result(
    plan: Plan, folder: Path, held: Sequence[Held], contenders: Sequence[Contender], started: float
) -> Result:
    judging = time.monotonic()
    code, message = assemble.failure(held)
    records = assemble.launches(held)
    rows = _rows(plan, held, contenders)
    speed = assemble.speed(held)
    now = time.monotonic()
    return Result(
        schema_version=SCHEMA_VERSION,
        command="bench",
        verdict="FAILED" if code else None,
        exit_code=int(code),
        reasons=[*([message] if message else []), *_fastest(rows)],
        runs=[assemble.run_ref(folder, plan)],
        curves={},
        numerics=None,
        comparisons=[],
        speed=speed,
        capture=assemble.capture(held),
        bench=rows,
        launches=records,
        seconds=assemble.seconds(records, now - started, now - judging),
        unmeasured={"numerics": "bench measures speed; parity run judges numbers"}
        | ({} if speed else {"speed": "no time pass was finished"}),
    )


def _fastest(rows: Sequence[BenchRow]) -> list[str]:
    """For each side with a choice of modes of its own: which was the fastest, and over how many steps."""
    told = []
    for side in dict.fromkeys(row.side for row in rows):
        own = [row for row in rows if row.side == side and not row.mode.startswith("baseline:")]
        timed = {row.mode: row.speed.step_ms.median for row in own if row.speed.step_ms}
        if len(timed) > 1:
            best = min(own, key=lambda row: timed.get(row.mode, float("inf")))
            told.append(f"fastest {side} mode here: {best.mode}, over {best.steps} steps without a failure")
    return told


def _rows(plan: Plan, held: Sequence[Held], contenders: Sequence[Contender]) -> list[BenchRow]:
    jobs = assemble.finished(held, "time")
    passes = {
        contender: [TimePass(Path(job.out)) for job in jobs if (job.side, job.mode) == contender]
        for contender in contenders
    }
    rows = []
    for side, mode in contenders:
        speed, own = side_speed(passes[side, mode]), plan.spec.execution.mode(side)
        if speed is None:
            continue
        samples, own_samples = ([item.step_ms for item in passes[side, one]] for one in (mode, own))
        ratio = None if mode == own else statistics.ratio(samples, own_samples)
        steps = sum(item.steps for item in passes[side, mode])
        rows.append(BenchRow(side=side, mode=mode, speed=speed, ratio_to_own=ratio, steps=steps))
    return rows
