"""The table of `parity bench`: a contender a row, or a batch a row for a sweep, and what stands below it.

Must not: decide anything; all of it stands in the result.
"""

from collections.abc import Iterator

from parity.report import words
from parity.report.result import BenchRow, Result
from parity.report.speeds import Crossing, HostModel, Sweep, SweepPoint

Table = tuple[list[str], list[list[str]]]

COLUMNS = {
    "step_ms": "step_ms",
    "launch_us": "launch_us",
    "dispatch_us": "dispatch_us",
    "calls": "launch_calls_per_step",
    "kernels": "kernels_per_step",
    "idle": "device_idle_share",
    "exposed_comm_ms": "exposed_communication_ms",
    "mfu": "mfu",
    "peak_mem_bytes": "peak_mem_bytes",
    "compile_s": "compile_s",
    "capture_s": "capture_s",
}
"""Heads, and the figure that stands under each."""


def table(result: Result) -> Table:
    """Heads and lines."""
    if result.sweep is not None:
        return _sweep(result.sweep)
    return _contenders(result.bench)


def notes(result: Result) -> Iterator[str]:
    """What a reader of the table must know: columns left out, unclear ratios, warnings, what sweeps show."""
    if result.command == "bench" and result.bench and result.sweep is None:
        if all(row.speed.initial_state for row in result.bench):
            yield "every pass was timed from the initial state: put back after warm-up, and equal to the bit"
        yield from left_out(result.bench)
        yield from _unclear(result.bench)
    if result.speed is not None and result.speed.ratio is not None and result.speed.ratio.settle:
        call = words.newest_call(result)
        of_call = f"{call}: " if call else ""
        yield f"{of_call}torch / jax is AMBIGUOUS; what would settle it: {result.speed.ratio.settle}"
    if len(result.invocations) > 1:
        for call in result.invocations:
            yield f"call {call.number}: {call.utc}, {call.ended}, parity {' '.join(call.argv)}"
        if len({call.host_hash for call in result.invocations}) > 1:
            yield "the calls ran on several hosts of one kind"
    if result.sweep is not None:
        yield from crossings(result.sweep)
        yield from model(result.sweep)
    yield from warnings(result)


def warnings(result: Result) -> Iterator[str]:
    """One line a warning."""
    for one in result.warnings:
        yield f"warning: {one.kind}: {one.where}: {one.found}; next: {one.mend}"


def _contenders(rows: list[BenchRow]) -> Table:
    """A contender a row."""
    shown = [head for head in COLUMNS if any(words.figure(row.speed, COLUMNS[head]) != "-" for row in rows)]
    several = len({row.invocation for row in rows}) > 1
    peers = any(row.peer for row in rows)
    heads = [
        "",
        *(["call"] if several else []),
        *shown,
        "steps",
        "/ own step",
        *(["/ best peer"] if peers else []),
    ]
    lines = []
    for row in rows:
        own = "own" if row.is_own else words.ratio(row.ratio_to_own)
        lines.append(
            [
                f"{row.side} {row.mode}",
                *([str(row.invocation)] if several else []),
                *(words.figure(row.speed, COLUMNS[head]) for head in shown),
                str(row.steps),
                own,
                *([_peer(row)] if peers else []),
            ]
        )
    return heads, lines


def _peer(row: BenchRow) -> str:
    if row.peer is None:
        return "-"
    if row.peer == row.mode:
        return "the best peer"
    return f"{row.peer.removeprefix('baseline:')}: {words.ratio(row.ratio_to_peer)}"


def left_out(rows: list[BenchRow]) -> Iterator[str]:
    """One line for the columns without a value, by reason."""
    reasons: dict[str, list[str]] = {}
    for head, name in COLUMNS.items():
        if all(words.figure(row.speed, COLUMNS[head]) == "-" for row in rows):
            told = [row.speed.reasons[name] for row in rows if name in row.speed.reasons]
            reasons.setdefault(told[0] if told else "not measured in this version", []).append(head)
    if reasons:
        yield "no column for " + "; ".join(f"{', '.join(heads)}: {why}" for why, heads in reasons.items())


def _unclear(rows: list[BenchRow]) -> Iterator[str]:
    for row in rows:
        for ratio, name in ((row.ratio_to_own, "own step"), (row.ratio_to_peer, row.peer)):
            if ratio is not None and ratio.settle:
                yield f"{row.side} {row.mode} / {name} is AMBIGUOUS; what would settle it: {ratio.settle}"


def _sweep(sweep: Sweep) -> Table:
    """A batch a row, a contender a column: step_ms, its spread, and the model's error where it predicts."""
    contenders = list(dict.fromkeys((point.side, point.mode) for point in sweep.points))
    found = {(point.side, point.mode, point.batch): point for point in sweep.points}
    heads = ["batch", *(f"{side} {mode}" for side, mode in contenders), "model"]
    lines = []
    for batch in sweep.batches:
        cells = [_point(found.get((side, mode, batch))) for side, mode in contenders]
        lines.append([str(batch), *cells, _part([point for point in sweep.points if point.batch == batch])])
    return heads, lines


def _part(points: list[SweepPoint]) -> str:
    """What a batch is to the model."""
    if not points:
        return "not measured"
    if any(point.fitted for point in points):
        return "fitted on"
    return "predicts" if any(point.predicted_ms is not None for point in points) else "no model"


def _point(point: SweepPoint | None) -> str:
    if point is None:
        return "-"
    at = point.step_ms
    text = f"{words.compact(at.median)} ({words.compact(at.p10)}-{words.compact(at.p90)})"
    return text if point.fitted or point.error is None else f"{text}, {100 * point.error:+.1f} %"


def crossings(sweep: Sweep) -> Iterator[str]:
    """A line for each crossing, in the order of the result, and one for each pair that has none."""
    told = set()
    for one in sweep.crossings:
        # One batch that is left out may hold a crossing.
        part = _batches(one) if set(one.batches) != set(sweep.batches) else ""
        if one.batch is None:
            slower = one.b if one.below == one.a else one.a
            end = "whether they cross elsewhere is not known" if part else "they do not cross"
            yield f"{one.below} has a lesser median than {slower} at {part or 'every batch'}: {end}"
            continue
        none = f"none within {'these' if part else 'the sweep'}"
        low, high = ((none if bound is None else f"{bound:.3g}") for bound in one.ci95)
        at = f"batch {one.batch:.3g} (95 % {low} to {high})"
        words = f"{one.below} is faster below {at}, {one.above} above it"
        if (one.a, one.b) in told:
            words = f"from {at} on it is {one.above} again"
        told.add((one.a, one.b))
        yield f"{words} [{one.a} / {one.b}]{f', by {part}' if part else ''}"


def _batches(one: Crossing) -> str:
    if not one.batches:
        return "the batches that both were measured at"
    return f"batches {_and(one.batches)}, all that both were measured at"


def _and(batches: list[int]) -> str:
    first, last = ", ".join(map(str, batches[:-1])), str(batches[-1])
    return f"{first} and {last}" if first else last


def model(sweep: Sweep) -> Iterator[str]:
    """What the model was fitted on, what it says, and how well it predicts."""
    first, *rest = fitted_on(sweep)
    if any(point.fitted for point in sweep.points):
        yield f"model: step_ms = max(host, a + b * batch), {first}"
        yield from rest
        yield f"where {sweep.meaning}"
        yield from map(_side, sweep.model)
        yield predicted(sweep)
    else:
        yield first


def fitted_on(sweep: Sweep) -> Iterator[str]:
    """On which batches the model was fitted, and which of those declared were not measured."""
    fitted = [point for point in sweep.points if point.fitted]
    on = sorted({point.batch for point in fitted})
    if not on:
        why = "none of the batches that it is fitted on was measured"
        if any(point.batch in sweep.fitted for point in sweep.points):
            why = f"nobody was measured at two of {_and(sweep.fitted)}, the batches that it is fitted on"
        yield f"no model: {why}"
        return
    yield f"fitted on batches {', '.join(map(str, on))}"
    if missing := [batch for batch in sweep.fitted if batch not in on]:
        yield f"it was to be fitted on {_and(missing)} too, not measured"
    for who in dict.fromkeys((point.side, point.mode) for point in sweep.points):
        own = [point.batch for point in fitted if (point.side, point.mode) == who]
        if sorted(own) != on:
            yield f"of {' '.join(who)} on {f'{_and(sorted(own))} alone' if own else 'none of them'}"


def predicted(sweep: Sweep) -> str:
    """How many points lie where the model said."""
    within, total = sweep.within
    if not total:
        return f"nothing is predicted: {_unpredicted(sweep)}"
    worst = max((point for point in sweep.points if not point.fitted and point.error is not None), key=_miss)
    return (
        f"predicted within {100 * sweep.target:.0f} %: {within} of {total} points; the worst is "
        f"{worst.side} {worst.mode} at batch {worst.batch}, off by {100 * (worst.error or 0):+.1f} %"
    )


def _unpredicted(sweep: Sweep) -> str:
    if set(sweep.batches) > set(sweep.fitted):
        others = any(point.batch not in sweep.fitted for point in sweep.points)
        return "who was measured at the others has no model" if others else "none of the others was measured"
    on = {point.batch for point in sweep.points if point.fitted}
    return f"every batch is one that the model {'is' if on == set(sweep.fitted) else 'was to be'} fitted on"


def _miss(point: SweepPoint) -> float:
    return abs(point.error or 0.0)


def _side(model: HostModel) -> str:
    hosts = ", ".join(
        f"{mode} {'-' if host is None else f'{words.compact(host)} ms'}"
        for mode, host in model.host_ms.items()
    )
    device = "device -"
    if model.device_ms is not None and model.device_ms_per_row is not None:
        per_row = words.compact(1e3 * model.device_ms_per_row)
        device = f"device {words.compact(model.device_ms)} ms + {per_row} us a row"
    reason = f" ({model.reason})" if model.reason else ""
    return f"{model.side}: host {hosts}; {device}{reason}"
