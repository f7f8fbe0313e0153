"""The speed of a run beside that of a saved one: which may be compared, what changed, what that means.

Must not: start anything, or judge numbers.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parity import assemble, folders, same_work
from parity.bench import blocks
from parity.options import Bench, Compare, Run
from parity.plan import Plan
from parity.report import against_lines
from parity.report.result import Result
from parity.report.speeds import Against
from parity.session import Held
from parity.speed.figures import TimePass
from parity.speed.machine import Difference, difference
from parity.speed.regression import FIGURES, Limit, change, measured, parse_limits
from spec import codec
from spec.environment import describe_environment
from spec.errors import PRECEDENCE, ExitCode, RuleError, few
from spec.run import RunSpec

Timed = Mapping[tuple[str, str, int], Sequence[TimePass]]
"""Time passes by side, mode and global batch."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A run that another is held against."""

    folder: Path
    timed: Timed
    changed: Difference
    """What of its surroundings is not as it was."""
    limits: tuple[Limit, ...]


def find(options: Run | Bench, plan: Plan, own: Path | None = None) -> Saved | None:
    """The saved run of `--against`; None where none was named.

    Args:
      own: the folder of the run itself, which is not held against itself.

    Raises:
      RuleError: there is none of this problem, processes and modes, it was made on another device or host, or
        what is guarded was not measured.
    """
    limits = parse_limits(options.fail_if)
    if limits and options.against is None:
        raise RuleError(
            "A limit holds against a saved run.", f"--fail-if {options.fail_if[0]}", "add --against last"
        )
    if options.against is None:
        return None
    if isinstance(options, Run) and not options.time:
        raise RuleError(
            "A run that is held against another is timed.",
            f"--against {options.against} --no-time",
            "leave one of them out",
        )
    modes = {(side, plan.spec.execution.mode(side)) for side in plan.backends}
    folder, timed = _saved(options, plan, modes, own)
    for passes in timed.values():
        for one in passes:
            # What cannot be read is said before minutes are measured to be held against it.
            one.check()
    before = folders.read_run(folder)["environment"]
    changed = difference(before, describe_environment(), plan.spec.execution.device)
    if (changed.device or changed.host) and not options.across_devices:
        raise _elsewhere(folder, changed)
    _check_guards(limits, folder, {key: passes for key, passes in timed.items() if key[:2] in modes})
    return Saved(folder=folder, timed=timed, changed=changed, limits=limits)


def _saved(
    options: Run | Bench, plan: Plan, modes: set[tuple[str, str]], own: Path | None
) -> tuple[Path, Timed]:
    """The folder that `--against` names, and what in it is like the plan."""
    out, is_bench = Path(options.out), isinstance(options, Bench)
    any_batch = isinstance(options, Bench) and options.sweep is not None
    if options.against == "last":
        for folder in folders.newest_first(out):
            if folder == own or not (folder / folders.RUN).exists():
                continue
            try:
                timed = _like(folder, plan, is_bench, any_batch)
            except RuleError as error:
                folders.pass_over(folder, error)
                continue
            if modes <= _contenders(timed):
                return folder, timed
        raise RuleError(
            "A run is held against an earlier one of the same problem, processes and modes.",
            f"none is in {out}: {_words(plan, is_bench)}, timed",
            "make it once without --against",
        )
    folder = folders.find(str(options.against), out)
    timed = _like(folder, plan, is_bench, any_batch)
    missing = ", ".join(" ".join(one) for one in sorted(modes - _contenders(timed)))
    if folder == own or missing:
        raise RuleError(
            "A run is held against another one of the same problem, processes and modes.",
            f"{folder.name} has no time pass of {missing}: {_words(plan, is_bench)}"
            f"{_apart(folder, plan, is_bench)}"
            if missing
            else f"{folder.name} is this run",
            "name another, or --against last, which finds one",
        )
    return folder, timed


def _words(plan: Plan, is_bench: bool) -> str:
    problem = plan.spec.problem
    steps = "steps" if is_bench else f"{problem.steps} steps"
    return f"{plan.spec.name} {problem.precision}, {steps} of {problem.global_batch} rows"


def _apart(folder: Path, plan: Plan, is_bench: bool) -> str:
    """What of the problem and its processes differs from the saved run's; empty where nothing does."""
    saved = _spec(folder, _timed(folder))
    any_steps = is_bench and blocks.is_benchmark(folder)
    found = same_work.differences(saved, plan.spec, any_steps=any_steps)
    return f"; it and this run differ in {few(found)}" if found else ""


def _spec(folder: Path, timed: Timed) -> RunSpec:
    """What was timed; of a run that was not, what it was."""
    if timed:
        return next(iter(timed.values()))[0].job.spec
    return codec.from_dict(RunSpec, folders.read_run(folder)["spec"])


def _check_guards(limits: Sequence[Limit], folder: Path, timed: Timed) -> None:
    """A guard that holds nothing would never fail.

    Args:
      timed: of the folder, what will be guarded.
    """
    for limit in limits:
        if not any(measured(limit.figure, passes) for passes in timed.values()):
            raise RuleError(
                "A guarded figure was measured.",
                f"--fail-if {limit.figure}:{limit.text}, which is null in {folder.name}",
                "guard another figure; the run's result.json has the reason",
            )


def _elsewhere(folder: Path, changed: Difference) -> RuleError:
    return RuleError(
        "Speeds are held against each other on one device of one host.",
        f"{folder.name}: {'; '.join([*changed.device, *changed.host])}",
        "--across-devices does it all the same",
    )


def add(result: Result, saved: Saved | None, held: Sequence[Held]) -> None:
    """Puts what changed into the result, and what that means for its exit code."""
    if saved is None:
        return
    now = _by_contender([TimePass(Path(job.out)) for job in assemble.finished(held, "time")])
    _add(result, saved, now)


def compare(result: Result, folders_: Sequence[Path], options: Compare) -> None:
    """The same for two saved runs, A and B; where no mode is in both, each side's own modes are compared.

    Raises:
      RuleError: limits were given, and the speeds cannot be compared.
    """
    limits = parse_limits(options.fail_if)
    timed = [_timed(folder) for folder in folders_]
    environments = [folders.read_run(folder)["environment"] for folder in folders_]
    specs = [_spec(folder, one) for folder, one in zip(folders_, timed, strict=True)]
    devices = [spec.execution.device for spec in specs]
    any_steps = all(blocks.is_benchmark(folder) for folder in folders_)
    apart = same_work.differences(specs[0], specs[1], any_steps=any_steps)
    changed = difference(environments[0], environments[1], devices[0])
    reason = ""
    if not all(timed):
        reason = "not both runs were timed"
    elif len({same_work.key(spec.problem, any_steps=any_steps) for spec in specs}) > 1:
        reason = f"the runs are of different problems: {few(apart, most=6)}"
    elif devices[0] != devices[1]:
        reason = f"one ran on {devices[0]}, the other on {devices[1]}"
    else:
        # Of one problem: how many devices, at most.
        changed = dataclasses.replace(changed, device=[*apart, *changed.device])
        if (changed.device or changed.host) and not options.across_devices:
            if limits:
                raise _elsewhere(folders_[0], changed)
            reason = (
                f"another device or host, see --across-devices: {'; '.join([*changed.device, *changed.host])}"
            )
    if reason:
        _leave_out(result, reason, limits)
        return
    if not timed[0].keys() & timed[1].keys():
        timed = [_own(one) for one in timed]
    both = timed[0].keys() & timed[1].keys()
    if not both:
        has = [few([_name(*one) for one in own], most=3) for own in timed]
        _leave_out(result, f"no side and batch is timed in both: {' / '.join(has)}", limits)
        return
    for folder, one in zip(folders_, timed, strict=True):
        _check_guards(limits, folder, {key: one[key] for key in both})
    saved = Saved(folder=folders_[0], timed=timed[0], changed=changed, limits=limits)
    _add(result, saved, timed[1])


def _leave_out(result: Result, reason: str, limits: Sequence[Limit]) -> None:
    """Speeds that are not compared: told, and refused where they were to be guarded."""
    if limits:
        raise RuleError("Guarded speeds were measured.", reason, "name two timed runs of one problem")
    result.unmeasured["speed"] = result.unmeasured["against"] = reason


def _name(side: str, mode: str, batch: int) -> str:
    return f"{side} {mode}, batch {batch}"


def _add(result: Result, saved: Saved, now: Timed) -> None:
    asked = tuple(dict.fromkeys(limit.figure for limit in saved.limits)) or tuple(FIGURES)
    changes, unmeasured = [], {}
    calls_before, calls_now = _calls(saved.timed), _calls(now)
    for key in [*now, *(key for key in saved.timed if key not in now)]:
        side, _, batch = key
        name = _name(*key)
        if key not in saved.timed or key not in now:
            unmeasured[name] = f"not timed in {'the saved run' if key in now else 'this run'}"
            continue
        modes = dict.fromkeys(passes[0].job.mode for passes in (saved.timed[key], now[key]))
        for figure in asked:
            found = change(
                figure,
                saved.timed[key],
                now[key],
                saved.limits,
                side=side,
                mode=" -> ".join(modes),
                batch=batch,
            )
            if found is not None:
                found.before_call = calls_before.get(saved.timed[key][0].folder.name)
                found.now_call = calls_now.get(now[key][0].folder.name)
                changes.append(found)
            elif saved.limits:
                unmeasured[f"{name}: {figure}"] = "not measured in both runs, so it is not guarded"
    result.against = Against(
        folder=str(saved.folder),
        same_host=not saved.changed.host,
        differences=[
            *saved.changed.device,
            *saved.changed.host,
            *saved.changed.versions,
            *_timing(saved.timed, now),
        ],
        changes=changes,
        unmeasured=unmeasured,
    )
    if any(one.failed for one in changes):
        result.exit_code = int(graver(ExitCode(result.exit_code), ExitCode.SLOWER))
    result.reasons += against_lines.reasons(result.against)


def _timing(before: Timed, now: Timed) -> list[str]:
    """How much was measured, where it was not as much."""
    was, found = (
        sorted({passes[0].job.timing.steps_per_window for passes in timed.values()})
        for timed in (before, now)
    )
    if was == found:
        return []
    return [f"steps a window {', '.join(map(str, was))}, now {', '.join(map(str, found))}"]


def graver(a: ExitCode, b: ExitCode) -> ExitCode:
    """The exit code that goes before the other; what must be mended goes before everything."""
    order = (ExitCode.USAGE, *PRECEDENCE, ExitCode.SAME)
    return min(a, b, key=order.index)


def _contenders(timed: Timed) -> set[tuple[str, str]]:
    return {(side, mode) for side, mode, _ in timed}


def _timed(folder: Path) -> Timed:
    """The finished time passes of a saved run; of a benchmark of several calls, those of the last one that
    measured the contender."""
    done = sorted(folder.glob("passes/*/done.json"))
    passes = [TimePass(path.parent) for path in done]
    passes = [one for one in passes if one.job.purpose == "time"]
    timed = dict(_by_contender(passes))
    for call in blocks.calls(folder):
        names = {name for block in call.blocks for name in block.passes}
        timed |= _by_contender([one for one in passes if one.folder.name in names])
    return timed


def _calls(timed: Timed) -> dict[str, int]:
    """The call that measured a pass, by its folder's name; empty where a run had one call at most."""
    if not timed:
        return {}
    found = blocks.calls(next(iter(timed.values()))[0].folder.parent.parent)
    several = found if len(found) > 1 else ()
    return {name: call.number for call in several for block in call.blocks for name in block.passes}


def _by_contender(passes: Sequence[TimePass]) -> Timed:
    found: dict[tuple[str, str, int], list[TimePass]] = {}
    for one in passes:
        key = one.job.side, one.job.mode, one.job.spec.problem.global_batch
        found.setdefault(key, []).append(one)
    return found


def _like(folder: Path, plan: Plan, is_bench: bool, any_batch: bool) -> Timed:
    """Of a saved run, the time passes of a plan's problem on as many processes; of a sweep, at any batch."""
    any_steps = is_bench and blocks.is_benchmark(folder)
    wanted = same_work.key(plan.spec.problem, any_steps=any_steps)

    def same(one: TimePass) -> bool:
        spec, now = one.job.spec, plan.spec
        processes = spec.execution.device, spec.execution.world_size
        alike = processes == (now.execution.device, now.execution.world_size)
        batches = spec.problem.global_batch, now.problem.global_batch
        alike = alike and (any_batch or batches[0] == batches[1])
        return alike and same_work.key(spec.problem, any_steps=any_steps) == wanted

    return {key: passes for key, passes in _timed(folder).items() if same(passes[0])}


def _own(timed: Timed) -> Timed:
    """Each side's own mode, under one name, so that runs in different modes meet."""
    return {
        (side, "own", batch): passes
        for (side, mode, batch), passes in timed.items()
        if mode == passes[0].job.spec.execution.mode(side)
    }
