"""From the rows of a lockstep comparison to evidence and to what a result tells of them.

Rule 3 for a whole run stands here: a meaning that differs below the noise of every step is latent. Where it
shows above the noise anywhere, in a later tensor or step, or because the two runs in float64 part by more
than the profile drifts, the first divergence is where it begins. Must not: hold a constant of the
rule.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from parity.judge import lockstep
from parity.judge.align import Measured
from parity.judge.curves import relative_difference
from parity.judge.evidence import Evidence
from parity.judge.lockstep import Row
from parity.judge.rule import FAILS
from parity.report.lockstep import Lockstep, LockstepRow, Measures
from parity.report.result import CurveDifference, DivergenceClass
from spec.errors import few

_SHOWN = 100
"""Rows of a result that do not agree; all of them can be had from the passes."""
_CLASSES: dict[str, DivergenceClass] = {
    "semantics": "semantics",
    "precision": "precision",
    "unmatched": "unmatched",
}


@dataclass(frozen=True, kw_only=True)
class Passes:
    """What a measured run left, by side; `truths`, `casts` and `free` are empty where they were not made."""

    probes: dict[int, str]
    lockstep: dict[str, Path]
    truths: dict[str, Path]
    """In float64, a user's casts promoted."""
    free: dict[str, Path]
    """The whole run like that."""
    casts: dict[str, Path] = field(default_factory=dict)
    """In float64, a user's casts as they stand."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Found:
    """The measured half of a judgement."""

    evidence: list[Evidence]
    latent: list[Row]
    summary: Lockstep
    runs_agree: bool
    """Whether the whole runs in float64 agree, so that rounding alone parts those in the profile."""


def look(a: Measured, b: Measured, passes: Passes) -> Found:
    """Compares the lockstep passes of two sides whose run passes are at hand."""
    labels = a.label, b.label
    folders = [passes.lockstep[side.job.side] for side in (a, b)]
    truths = [passes.truths.get(side.job.side) for side in (a, b)]
    casts = [passes.casts.get(side.job.side) for side in (a, b)]
    rows = lockstep.compare(*folders, *truths, *casts, labels=labels)
    runs = _runs_in_float64(a, b, passes)
    visible = next((_evidence(row).message for row in rows if row.finding == "semantics"), "")
    if not visible and runs is not None and not runs.ok:
        visible = runs.message
    if visible:
        # Below the noise where it begins, it is the cause of what shows later.
        rows = [_surfaced(row, visible) if row.finding == "latent" else row for row in rows]
    evidence = [_evidence(row) for row in rows if not row.ok]
    if runs is not None and not runs.ok:
        evidence.append(runs)
    summary = Lockstep(
        probes={str(step): why for step, why in sorted(passes.probes.items())},
        compared=sum(row.sides is not None for row in rows),
        found=dict(Counter(str(row.finding) for row in rows)),
        reruns=max((row.floor.reruns for row in rows if row.floor), default=0),
        truths=all(truths),
        rows=[*_nearest(rows), *[told(row) for row in rows if row.finding != "same"][:_SHOWN]],
        notes=[*passes.notes, *_casts_told(a, b, passes), *_instrumented(a, b, passes), *_as_rounding(rows)],
    )
    return Found(
        evidence=evidence,
        latent=[row for row in rows if row.finding == "latent"],
        summary=summary,
        runs_agree=runs is not None and runs.ok,
    )


def with_drift(
    difference: CurveDifference | None, a: Measured, b: Measured, quantity: str, passes: Passes
) -> CurveDifference | None:
    """A curve's difference with what the runs in float64 show of it: the drift of each side is its floor."""
    exact = _free(a, b, passes)
    if difference is None or exact is None:
        return difference
    one, other = (getattr(side.curve, quantity) for side in exact)
    drifts = {
        side.label: _largest(getattr(side.curve, quantity), true)
        for side, true in zip((a, b), (one, other), strict=True)
    }
    difference.truth_max_rel = _largest(one, other)
    difference.drift = drifts
    floor = max(drifts.values())
    if floor > 0 and np.isfinite(floor):
        difference.floor = floor
        difference.tolerance, difference.first_tolerance = FAILS * floor, None
        difference.tolerance_source = "measured"
        difference.tolerance_reason = f"{FAILS:g} times the largest drift of a side from its own float64 run"
    return difference


def told(row: Row) -> LockstepRow:
    """A row as it stands in `result.json`."""
    sides = row.sides
    return LockstepRow(
        step=row.step,
        phase=row.phase,
        tensor=row.tensor,
        finding=row.finding,
        reason=row.reason,
        worst_index=[] if sides is None else list(sides.index),
        worst={} if sides is None else _by_label(row, (sides.a, sides.b)),
        numbers=measures(row),
    )


def measures(row: Row) -> Measures | None:
    """All numbers of a row; None for a tensor of one side alone."""
    sides, truths, plainest = row.sides, row.truths, row.plainest
    if sides is None or plainest is None:
        return None
    errors = [error.rms for error in row.errors] if row.errors else []
    in_floors = [
        None if error is None else error / own.rms
        for error, own in zip(errors, row.floors or (), strict=False)
    ]
    return Measures(
        s=row.s,
        rms_rel=_over(sides.rms, row.s),
        max_rel=sides.largest,
        ulps=sides.ulps,
        cosine=plainest.cosine,
        mean_ratio=plainest.ratio,
        semantic_rms_rel=_over(truths.rms, row.s) if truths else None,
        semantic_max_rel=truths.largest if truths else None,
        error=dict(zip(row.labels, errors, strict=False)),
        error_in_floors=dict(zip(row.labels, in_floors, strict=False)),
        further=row.further,
        truth=_by_label(row, row.truth_at_worst) if row.truth_at_worst else {},
        floor_rms=row.floor.rms if row.floor else None,
        floor_max=row.floor.worst if row.floor else None,
    )


def _casts_told(a: Measured, b: Measured, passes: Passes) -> Iterator[str]:
    """Which operations of a user's code ask for narrower types, and which stayed narrow in float64."""
    for side in (a, b):
        folder = passes.truths.get(side.job.side)
        noted = Measured(side.label, folder).manifest.get("promotion") if folder else None
        for kind, words in (("promoted", "casts in"), ("left", "stayed narrow in the truth:")):
            lines = list((noted or {}).get(kind, ()))
            if lines:
                yield f"{side.label} {words} {few(lines, 3, ', ')}"


def _as_rounding(rows: list[Row]) -> Iterator[str]:
    """Of a comparison in which nothing stands out: how near to its floor it comes, and what is truly zero."""
    if not all(row.ok for row in rows):
        return
    apart = [row for row in rows if row.sides is not None and row.sides.rms]
    if apart:
        nearest = max(apart, key=_in_floors)
        at = f"{nearest.phase} of step {nearest.step}{', ' + nearest.tensor if nearest.tensor else ''}"
        times = _in_floors(nearest)
        yield f"consistent with rounding in another order: x{times:.2g} of the floor at most, {at}"
    zero = {row.tensor: None for row in rows if row.phase == "grad" and row.of_nothing}
    for tensor in zero:
        yield f"gradient of {tensor}: its true value is zero; judged by the floor of its group"


def _in_floors(row: Row) -> float:
    """How far apart the sides are, in floors."""
    if row.floor is None or row.sides is None or row.sides.rms is None:
        return 0.0
    return _over(row.sides.rms, row.s) / row.floor.rms  # type: ignore[operator]


def _instrumented(a: Measured, b: Measured, passes: Passes) -> Iterator[str]:
    """Sides whose observed program is not, to the bit, the one that is timed."""
    for side in (a, b):
        said = Measured(side.label, passes.lockstep[side.job.side]).manifest["reasons"].get("observation", "")
        if "unequal" in said:
            yield f"{side.label} instrumented only: {said}"


def _evidence(row: Row) -> Evidence:
    numbers = measures(row)
    index = row.sides.index if row.sides else ()
    what = row.phase if row.tensor is None else f"{row.phase}, {row.tensor}{list(index)}"
    values = _by_label(row, (row.sides.a, row.sides.b)) if row.sides else {}
    shown = ", ".join(f"{label} {value}" for label, value in values.items())
    tell = row.further is not None and row.finding != "semantics"
    further = f"; {row.further} is further from its truth" if tell else ""
    return Evidence(
        step=row.step,
        phase=row.phase,
        tensor=row.tensor,
        class_=_CLASSES.get(row.finding),
        covered=row.finding != "unclear",
        index=index,
        values=values,
        difference=numbers.rms_rel if numbers else None,
        tolerance=row.times * row.floor.rms if row.floor else None,
        message=f"lockstep step {row.step}, {what}: {shown} ({row.finding}: {row.reason}{further})",
        numbers=numbers,
    )


def _runs_in_float64(a: Measured, b: Measured, passes: Passes) -> Evidence | None:
    """Whether the runs in float64 part by more than the profile drifts by then; None where nobody can tell.

    In the f64 profile a run is its own truth, and drifts from nothing.
    """
    exact = _free(a, b, passes)
    if exact is None or a.job.spec.problem.precision == "f64":
        return None
    for quantity in ("loss", "grad_norm"):
        one, other = (getattr(side.curve, quantity) for side in exact)
        drifts = [
            relative_difference(*_cut(getattr(side.curve, quantity), true))
            for side, true in zip((a, b), (one, other), strict=True)
        ]
        steps = min(len(one), len(other), *map(len, drifts))
        noise = np.maximum.accumulate(np.maximum(drifts[0][:steps], drifts[1][:steps]))
        parted = relative_difference(one[:steps], other[:steps])
        beyond = np.flatnonzero(parted > noise)
        if beyond.size:
            step = int(beyond[0])
            return Evidence(
                step=step,
                phase=quantity,
                class_="semantics",
                values={side.label: repr(float(getattr(side.curve, quantity)[step])) for side in exact},
                difference=float(parted[step]),
                tolerance=float(noise[step]),
                message=f"in float64 the runs part by {parted[step]:.1e} in {quantity} at step {step}, "
                f"more than the profile's drift {noise[step]:.1e}",
            )
    return Evidence(step=0, phase="loss", ok=True, message="the runs in float64 agree")


def _surfaced(row: Row, where: str) -> Row:
    return replace(row, finding="semantics", reason=f"{row.reason}; above the noise: {where}")


def _free(a: Measured, b: Measured, passes: Passes) -> list[Measured] | None:
    """The runs in float64 of both sides, where they are."""
    found = [passes.free.get(side.job.side) for side in (a, b)]
    if None in found:
        return None
    return [Measured(side.label, folder) for side, folder in zip((a, b), found, strict=True) if folder]


def _nearest(rows: list[Row]) -> list[LockstepRow]:
    """Of every step and phase the row that uses most of its bounds."""
    groups: dict[tuple[int, str], Row] = {}
    for row in rows:
        if row.sides is not None:
            key = row.step, row.phase
            groups[key] = max(groups.get(key, row), row, key=nearness)
    return [told(row) for row in groups.values() if row.finding == "same"]


def nearness(row: Row) -> float:
    """The largest of a row's differences in floors."""
    if row.floor is None or row.sides is None or row.sides.rms is None:
        return float("inf")
    found = [error.rms for error in row.errors or ()] or [_over(row.sides.rms, row.s)]
    return max((value / row.floor.rms for value in found if value is not None), default=float("inf"))


def _cut(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    steps = min(len(one), len(other))
    return one[:steps], other[:steps]


def _largest(one: np.ndarray, other: np.ndarray) -> float:
    return float(relative_difference(*_cut(one, other)).max(initial=0.0))


def _over(value: float | None, s: float) -> float | None:
    return None if value is None else value / s if s else 0.0 if value == 0 else float("inf")


def _by_label(row: Row, values: tuple[float, float]) -> dict[str, str]:
    return {label: repr(value) for label, value in zip(row.labels, values, strict=True)}
