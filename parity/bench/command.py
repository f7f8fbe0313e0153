"""`parity bench`: our own step beside baseline steps, every contender twice, in order and in reverse.

One call measures one block of contenders, or with `--sweep` one for each batch; `--into` adds further blocks
to the folder of an earlier call. The result is put together anew from all of them.
"""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from parity import against, assemble, folders, traced, turns
from parity.beginning import begin
from parity.bench import blocks, rows, sweep
from parity.bench.blocks import Block, Call
from parity.bench.contenders import Contender, contenders
from parity.bench.sweep import Axis
from parity.options import Bench
from parity.plan import Plan, make_plan
from parity.progress import Progress
from parity.report import deliver
from parity.report.result import SCHEMA_VERSION, BenchRow, LaunchRecord, Result, Speed, read_result
from parity.session import Held, hold
from parity.training import TIMING
from spec.environment import describe_environment
from spec.errors import ExitCode, RuleError
from spec.job import Timing


def bench(options: Bench, argv: Sequence[str]) -> ExitCode:
    """Times all contenders; writes the run folder and prints the table. Returns the exit code.

    Raises:
      RuleError: before anything starts.
    """
    started, progress = time.monotonic(), Progress()
    plan = make_plan(options)
    chosen, notes = contenders(plan, options)
    timing, axis = _timing(plan, options), sweep.parse(options.sweep, plan, options.global_batch)
    deliver.check_target(options.json)
    into = _into(options)
    saved = None if plan.pair else against.find(options, plan, into)
    folder, plan = _folder(options, argv, plan, axis, into, progress)
    # The size of a pair's models is known from here on.
    saved = against.find(options, plan, folder) if plan.pair else saved
    for note in notes:
        progress.say(note)
    # What an earlier call left must be readable before minutes are measured beside it.
    rows.check(folder, blocks.calls(folder))
    with blocks.alone(folder):
        call, held = _measure(options, argv, plan, axis, chosen, timing, folder, progress)
        result = _result(plan, argv, folder, held, axis, call, started)
        result.reasons += notes
        against.add(result, saved, held)
        deliver.deliver(result, folder, options.json)
    # Not those of earlier calls: what they left open has been measured since, or is told of by its absence.
    deliver.tell_failures(assemble.launches(held), folder)
    return ExitCode(result.exit_code)


def _timing(plan: Plan, options: Bench) -> Timing:
    usual = TIMING[plan.spec.execution.device]
    warmup = usual.warmup_steps if options.warmup_steps is None else options.warmup_steps
    calls = usual.calls if options.calls is None else options.calls
    if min(options.windows, options.steps_per_window, calls) < 1 or warmup < 0:
        raise RuleError(
            "A benchmark measures at least one window of one step, and one call.",
            f"--windows {options.windows} --steps-per-window {options.steps_per_window}, "
            f"{calls} calls, warm-up {warmup}",
            "--windows, --steps-per-window and --calls from 1 on, --warmup-steps from 0 on",
        )
    return Timing(
        warmup_steps=warmup,
        windows=options.windows,
        steps_per_window=options.steps_per_window,
        calls=calls,
    )


def _folder(
    options: Bench,
    argv: Sequence[str],
    plan: Plan,
    axis: Axis | None,
    into: Path | None,
    progress: Progress,
) -> tuple[Path, Plan]:
    """The run folder to measure into, and the plan with what a pair was found to be.

    Raises:
      RuleError: an earlier run cannot take these measurements, or a pair cannot be used.
    """
    declared = axis.declared() if axis else None
    if into is not None:
        if plan.pair is not None:
            raise RuleError(
                "A pair's models are described once for every run.",
                f"--into {options.into} with a pair",
                "leave --into out",
            )
        blocks.check_goes_on(into, plan, declared, describe_environment())
        if (saved := into / folders.RESULT).exists():
            # What cannot be read is said before hours are measured into it.
            read_result(saved)
        return into, plan
    folder, settled = begin(plan, options, argv, progress, {"sweep": declared})
    if settled.refusals:
        raise RuleError(
            "The models of a pair correspond, tensor by tensor.",
            "; ".join(settled.refusals[:4]),
            f"parity run {options.preset} lists all of them",
        )
    return folder, settled.plan


def _into(options: Bench) -> Path | None:
    """The folder of an earlier benchmark that is measured into; None for a new one."""
    return None if options.into is None else folders.find(options.into, Path(options.out), folders.PASSES)


def _measure(
    options: Bench,
    argv: Sequence[str],
    plan: Plan,
    axis: Axis | None,
    chosen: list[Contender],
    timing: Timing,
    folder: Path,
    progress: Progress,
) -> tuple[Call, list[Held]]:
    """Measures what is asked for and not whole yet; how it ended is written down."""
    batches = [plan.spec.problem.global_batch]
    if axis is not None:
        batches = sweep.left(axis, folder, blocks.calls(folder), chosen)
        if not batches:
            raise RuleError(
                "Something of the sweep is left to measure.",
                f"{folder.name}: every batch has all of these contenders",
                "name further --baselines or --mode, or leave --into out",
            )
    planned, order = [], []
    made = blocks.last_pass(folder)
    for batch in batches:
        own = turns.timed(sweep.with_batch(plan, batch), folder, chosen, timing, made)
        names = [Path(job.out).name for turn in own for job in turn.jobs]
        planned.append(Block(batch=batch, contenders=chosen, passes=names))
        order, made = [*order, *own], made + len(names)
    call = blocks.new_call(folder, argv, timing, describe_environment(), planned)
    held = hold(plan, turns.joined(order), folder, progress, blocks.last_launch(folder))
    for batch in batches if options.trace else ():
        held += traced.hold_traces(sweep.with_batch(plan, batch), folder, chosen, timing, held, progress)
    call.ended = held[-1].ended.how
    call.write(folder)
    return call, held


def _result(
    plan: Plan,
    argv: Sequence[str],
    folder: Path,
    held: Sequence[Held],
    axis: Axis | None,
    call: Call,
    started: float,
) -> Result:
    judging = time.monotonic()
    code, message = assemble.failure(held)
    records, calls = assemble.launches(held), blocks.calls(folder)
    timed = rows.rows(folder, calls)
    speed, why_not = _speed(held, axis)
    now = time.monotonic()
    return Result(
        schema_version=SCHEMA_VERSION,
        command="bench",
        verdict="FAILED" if code else None,
        exit_code=int(code),
        reasons=[
            *([message] if message else []),
            *go_on(folder, held, timed, argv, plan.pair is not None),
            *_fastest(timed),
        ],
        runs=[assemble.run_ref(folder, plan)],
        curves={},
        numerics=None,
        comparisons=[],
        speed=speed,
        capture=assemble.capture(held),
        bench=timed,
        launches=[*_earlier(folder, call), *records],
        seconds=assemble.seconds(records, now - started, now - judging),
        unmeasured={"numerics": "bench measures speed; parity run judges numbers"}
        | ({} if speed else {"speed": why_not}),
        warnings=rows.told(folder, calls),
        invocations=[one.told() for one in calls],
        sweep=sweep.results(axis, folder, calls, plan.spec.execution.device) if axis else None,
    )


def _speed(held: Sequence[Held], axis: Axis | None) -> tuple[Speed | None, str]:
    """Torch relative to jax as this call measured them, or why there is no one ratio."""
    if axis is not None:
        return None, "a sweep has a speed at every batch: see bench and sweep"
    return assemble.speed(held), "no time pass was finished"


def go_on(
    folder: Path, held: Sequence[Held], timed: Sequence[BenchRow], argv: Sequence[str], is_pair: bool
) -> list[str]:
    """How to measure what an interrupted call left."""
    if held[-1].ended.how != "interrupted":
        return []
    stands = "what was measured stands" if timed else "no pass was finished"
    # `_folder` refuses to measure a pair into an earlier run.
    return [f"{stands}; {going_on(argv, None if is_pair else folder.name.partition('_')[0])}"]


def going_on(argv: Sequence[str], number: str | None) -> str:
    """The command that measures what an interrupted one left into its run, ready to be typed.

    A file of `--json` is left out of it: the interrupted call has written it, and no call writes over one.

    Args:
      number: of the run; None where no call can add to it, and the command is run anew.
    """
    words, target, rest = list[str](), None, list(argv)
    while rest:
        name, equals, value = (word := rest.pop(0)).partition("=")
        if name not in ("--into", "--json"):
            words.append(word)
            continue
        value = value if equals else rest.pop(0)
        if name == "--json":
            target = value
    if target == "-":
        words += ["--json", "-"]
    into = ["--into", number] if number else []
    does = "adds to it" if number else "measures all of it anew: nothing is added to the run of a pair"
    told = f" (--json {target} holds what there is: name another file)" if target not in (None, "-") else ""
    return f"{shlex.join(['parity', *words, *into])} {does}{told}"


def _earlier(folder: Path, call: Call) -> list[LaunchRecord]:
    """The launches of earlier calls, as far as their result was written."""
    path = folder / folders.RESULT
    return read_result(path).launches if call.number > 1 and path.exists() else []


def _fastest(rows: Sequence[BenchRow]) -> list[str]:
    """For each side with a choice of modes of its own: which was the fastest, and over how many steps."""
    told = []
    if len({(row.batch, row.invocation) for row in rows}) > 1:
        return []
    for side in dict.fromkeys(row.side for row in rows):
        own = [row for row in rows if row.side == side and not row.mode.startswith("baseline:")]
        timed = {row.mode: row.speed.step_ms.median for row in own if row.speed.step_ms}
        if len(timed) > 1:
            best = min(own, key=lambda row: timed.get(row.mode, float("inf")))
            doubt = "" if is_clear(best, own) else " by its median, though not clearly"
            told.append(
                f"fastest {side} mode here: {best.mode}{doubt}, over {best.steps} steps without a failure"
            )
    return told


def is_clear(best: BenchRow, own: Sequence[BenchRow]) -> bool:
    """Whether the fastest mode is beyond doubt faster than the run's own, or as that one than all others."""
    if best.ratio_to_own is not None:
        return best.ratio_to_own.verdict == "FASTER"
    others = [row.ratio_to_own for row in own if row is not best]
    return all(ratio is not None and ratio.verdict == "SLOWER" for ratio in others)
