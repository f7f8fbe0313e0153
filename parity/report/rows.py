"""The lines of the console report: headline, table, notes and paths, as plain strings.

Must not: print. One table serves every command; its columns are the two sides, their difference and the
bound.
"""

from collections.abc import Iterator
from pathlib import Path

from parity.report import against_lines, bench_table, seeds
from parity.report.bench_table import Table
from parity.report.lockstep import LockstepRow
from parity.report.result import (
    CurveDifference,
    Numerics,
    Result,
    SideCurve,
    Speed,
    TensorDifference,
)
from parity.report.words import allowed, figure, newest_call

_TRACED = (
    "launch_calls_per_step",
    "launch_api_us_per_step",
    "graph_updates_per_step",
    "kernels_per_step",
    "device_busy_ms",
    "device_idle_share",
    "exposed_communication_ms",
)


def headline(result: Result) -> str:
    """The verdict, or the command, and the one number or reason behind it."""
    if _tested(result) and result.equivalence is not None:
        return seeds.headline(result.equivalence)
    if result.verdict is None:
        runs = ", ".join(f"{run.name} {run.precision}" for run in result.runs)
        return f"{result.command}: {runs}"
    numerics = result.numerics
    if result.verdict == "SAME" and numerics is not None and numerics.loss is not None:
        return f"SAME  loss max rel {_number(numerics.loss.max_rel)} (tol {allowed(numerics.loss.tolerance)})"
    return f"{result.verdict}  {result.reasons[0] if result.reasons else ''}".rstrip()


def _tested(result: Result) -> bool:
    """Whether an equivalence test has an outcome: that stands in the headline, before any reason."""
    return result.equivalence is not None and result.equivalence.outcome is not None


def speed_phrase(result: Result) -> str:
    """Torch relative to jax, with the interval and, of several, the call; empty where nothing was timed."""
    speed = result.speed
    if speed is None or speed.ratio is None or speed.verdict is None:
        return ""
    ratio, (low, high) = speed.ratio.median, speed.ratio.ci95
    call = newest_call(result)
    head = f"speed: {call}: " if call else "speed: "
    if speed.verdict == "FASTER":
        return f"{head}torch {1 / ratio:.2f}x faster than jax (95 % {1 / high:.2f}-{1 / low:.2f})"
    if speed.verdict == "SLOWER":
        return f"{head}torch {ratio:.2f}x slower than jax (95 % {low:.2f}-{high:.2f})"
    return f"{head}{speed.verdict} (torch / jax {ratio:.2f}, 95 % {low:.2f}-{high:.2f})"


def table(result: Result) -> Table:
    """Heads and lines of the one table."""
    if result.command == "bench":
        return bench_table.table(result)
    if result.equivalence is not None:
        return seeds.table(result.equivalence)
    # Where a run changed sides too, the sides themselves come first.
    numerics = result.comparisons[0] if result.handoff is not None else result.numerics
    if numerics is not None:
        labels = numerics.pair
        heads = ["", *labels, "difference", "tolerance"]
        steps = _lockstep(numerics) if numerics.lockstep else _phases(numerics)
        lines = [*_curves(numerics), *steps, *_handoff(result, labels)]
    else:
        labels = list(result.curves)
        heads = ["", "A", "B", "B / A", "limit"] if result.command == "compare" else ["", *labels]
        lines = list(_trainings(result.curves))
    if result.speed is not None:
        lines += _speeds(result.speed, labels)
    if result.command == "compare" and result.against is not None:
        lines += against_lines.lines(result.against)
    return heads, [line[: len(heads)] for line in lines]


def _trainings(curves: dict[str, SideCurve]) -> Iterator[list[str]]:
    """The losses of sides that are not judged, step by step."""
    steps = sorted({point.step for curve in curves.values() for point in curve.points})
    for step in steps:
        found = [
            next((point for point in curve.points if point.step == step), None) for curve in curves.values()
        ]
        cells = [
            "-" if point is None else f"{_value(point.loss)}  (grad norm {float(point.grad_norm):.4g})"
            for point in found
        ]
        yield [f"loss, step {step}", *cells]


def _curves(numerics: Numerics) -> Iterator[list[str]]:
    for name, curve in (("loss", numerics.loss), ("grad norm", numerics.grad_norm), ("lr", numerics.lr)):
        if curve is not None:
            yield from _curve(name, numerics.pair, curve)


def _curve(name: str, pair: list[str], curve: CurveDifference) -> Iterator[list[str]]:
    if name != "lr":
        yield [f"{name}, first step", *(_value(curve.first[label]) for label in pair), "", ""]
    bound = f"{allowed(curve.tolerance)} {curve.tolerance_source}" if curve.tolerance else "equal bits"
    where = f"{_number(curve.max_rel)} rel at step {curve.at_step}"
    yield [f"{name}, last step", *(_value(curve.last[label]) for label in pair), where, bound]


def _phases(numerics: Numerics) -> Iterator[list[str]]:
    """One line a phase and step, showing the tensor that comes nearest to its bound or goes beyond."""
    groups: dict[tuple[int, str], list[TensorDifference]] = {}
    for item in numerics.tensors:
        groups.setdefault((item.step, item.phase), []).append(item)
    for (step, phase), items in groups.items():
        worst = max(items, key=_nearness)
        failing = sum(not item.ok for item in items)
        count = f"{failing} of {len(items)} tensors beyond" if failing else f"{len(items)} tensors"
        yield [
            f"{phase}, step {step}: {count}, worst {worst.tensor}",
            *(_value(worst.worst[label]) for label in numerics.pair),
            f"{_number(worst.rms_rel)} rms rel, {_number(worst.max_rel)} max",
            f"{allowed(worst.tolerance_rms)}, {allowed(worst.tolerance_max)}",
        ]


def _handoff(result: Result, labels: list[str]) -> Iterator[list[str]]:
    """How far the run that changed sides is from the whole run of each side: at each change, and at most."""
    handoff = result.handoff
    if handoff is None:
        return
    for stretch in handoff.stretches[1:]:
        apart = [f"{_number(stretch.loss_rel[side])} rel" for side in labels]
        yield [f"hand-off, step {stretch.first_step}, first on {stretch.side}: loss", *apart, "", ""]
    pairs = {pair.pair[1]: pair for pair in result.comparisons if pair.pair[0] == handoff.label}
    for name in ("loss", "grad_norm"):
        found = [getattr(pairs[side], name) for side in labels]
        if all(found):
            apart = [f"{_number(curve.max_rel)} rel at step {curve.at_step}" for curve in found]
            bound = f"{allowed(found[0].tolerance)} {found[0].tolerance_source}"
            yield [f"hand-off {handoff.label}: {name.replace('_', ' ')}", *apart, "", bound]
    verdicts = [pairs[side].verdict for side in labels]
    yield [f"hand-off {handoff.label}: verdict", *verdicts, "", ""]


def _lockstep(numerics: Numerics) -> Iterator[list[str]]:
    """One line a phase over all probe steps, showing the tensor that uses most of its floor."""
    assert numerics.lockstep is not None
    groups: dict[str, list[LockstepRow]] = {}
    for row in numerics.lockstep.rows:
        if row.phase == "lr" and row.finding == "same":
            continue
        groups.setdefault(row.phase, []).append(row)
    for phase, rows in groups.items():
        worst = max(rows, key=_in_floors)
        failing = sum(row.finding not in ("same", "latent") for row in rows)
        at = f"step {worst.step}{', ' + worst.tensor if worst.tensor else ''}"
        numbers = worst.numbers
        if numbers is None:
            yield [f"lockstep {phase}: {worst.finding}, {at}", "", "", "", ""]
            continue
        errors = [numbers.error.get(label) for label in numerics.pair]
        cells = [f"{_number(error)} from truth" if numbers.error else "" for error in errors]
        exact = f", {_number(numbers.semantic_rms_rel)} in float64" if numbers.error else ""
        yield [
            f"lockstep {phase}: {f'{failing} beyond, ' if failing else ''}worst {at}",
            *cells,
            f"{_number(numbers.rms_rel)} rms rel{exact}",
            f"floor {_number(numbers.floor_rms)}",
        ]


def _in_floors(row: LockstepRow) -> tuple[bool, float]:
    """What counts first: that it fails; then how many floors it is off."""
    numbers = row.numbers
    found = [value for value in numbers.error_in_floors.values() if value is not None] if numbers else []
    return row.finding not in ("same", "latent"), max(found, default=0.0)


def _nearness(item: TensorDifference) -> float:
    """How much of its bound a difference uses; infinite where it cannot be measured."""
    if item.rms_rel is None or item.max_rel is None:
        return float("inf")
    return max(item.rms_rel / item.tolerance_rms, item.max_rel / item.tolerance_max)


def _speeds(speed: Speed, labels: list[str]) -> Iterator[list[str]]:
    sides = [getattr(speed, label, None) for label in labels]
    ratio = ""
    if speed.ratio is not None:
        ratio = f"ratio {speed.ratio.median:.3f}, 95 % {speed.ratio.ci95[0]:.3f}-{speed.ratio.ci95[1]:.3f}"
    for name in ("step_ms", "dispatch_us", "launch_us", *_TRACED, "mfu", "peak_mem_bytes", "compile_s"):
        values = [figure(side, name) for side in sides]
        if any(value != "-" for value in values):
            yield [name, *values, ratio if name == "step_ms" else "", ""]


def _value(text: str) -> str:
    return f"{float(text):.7g}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.1e}"


def notes(result: Result) -> Iterator[str]:
    """Reasons beyond the one in the headline, and edits, which explain a difference before anything else."""
    in_headline = result.verdict not in (None, "SAME") and not _tested(result)
    yield from (f"note: {reason}" for reason in result.reasons[1 if in_headline else 0 :])
    if result.numerics is not None and result.numerics.would_not_see:
        yield f"would not see mistakes in: {', '.join(result.numerics.would_not_see)}"
    if result.numerics is not None:
        yield from (f"note: {skew}" for skew in result.numerics.log_skew)
        if result.numerics.lockstep is not None:
            yield from (f"note: {note}" for note in result.numerics.lockstep.notes)
    yield from bench_table.notes(result)
    if result.against is not None:
        if result.command != "compare":
            yield from against_lines.notes(result.against)
        yield from against_lines.surroundings(result.against)
    elif result.command == "compare" and "against" in result.unmeasured:
        yield f"speeds were not compared: {result.unmeasured['against']}"
    for run in result.runs:
        for side, checkpoint in run.resumed.items():
            yield f"note: {side} went on from {checkpoint}"
        planted = [f"{side}:{edit}" for side, edits in run.edits.items() for edit in edits]
        if planted:
            yield f"note: planted by --edit: {', '.join(planted)}"


def paths(result: Result) -> Iterator[str]:
    """Where the files are."""
    for run in result.runs:
        yield f"run: {run.folder}"
    sides = [result.speed.torch, result.speed.jax] if result.speed is not None else []
    for side in sides:
        if side is not None and side.trace is not None:
            yield f"trace: {result.runs[0].folder}/passes/{side.trace.folder}/trace.perfetto.json"
    if result.command != "compare" and result.runs:
        yield f"result: {result.runs[0].folder}/result.json"
        if (Path(result.runs[0].folder) / "report.html").exists():
            yield f"report: {result.runs[0].folder}/report.html"
