"""`scaling.json`: what was measured, how it compares with what was predicted, and the model beyond.

Must not: draw, or write Markdown.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from benchmarks.scaling import fit, points, prediction
from benchmarks.scaling.fit import Fit, Known, Predicted, missing
from benchmarks.scaling.points import FAMILIES, Family, Point
from benchmarks.scaling.prediction import NodeRecord
from parity.report.result import read_result
from parity.report.speeds import Ratio

BEYOND = (4, 8, 64, 512, 10_000)
"""The counts that the model is asked for, where they are not measured."""
LOSS = "loss"
"""The folder of the loss checks within a study."""

ASSUMPTIONS = (
    "The batch of a device is constant, and so is its compute, whatever the number of devices; what hidden "
    "all-reduces slow it down is that of the largest number of devices measured.",
    "Devices and hosts are alike, and none breaks or slows down: no stragglers, no drifting clocks.",
    "The host launches as fast beside other ranks as on the largest number of devices measured; on a number "
    "that was measured as it did there.",
    "Launches of ranks are independent draws of the dispatch times of rank 0, and a step waits for the last "
    "of them: nothing is hidden by launching ahead. Beyond the sample there is an exponential tail above its "
    "90th percentile.",
    "Where launching takes more than 95 % of a step and no trace was made, the device's time is missing; "
    "otherwise the device is busy for all of a step that is not waiting for a launch.",
    "Within a node the all-reduce is a ring over equal links. They are fitted on traced collectives, or else "
    "on exposed parts as if nothing were hidden. Of two devices alone, what an all-reduce costs however "
    "small it is counts as latency of its hops, and grows with them.",
    "The exposed share of the all-reduce stays as on the largest number of devices measured. Where a trace "
    "tells it, waiting for other ranks inside a collective is part of it, and so counts twice.",
    "Beyond a node the all-reduce is hierarchical: a ring within, and between nodes the bytes of a ring and "
    "the hops of a double binary tree, without contention in the network.",
)


class Measured(Struct, kw_only=True):
    """The fastest contender of a family on so many devices."""

    preset: str
    family: Family
    mode: str
    devices: int
    step_ms: Known
    launch_us: Known
    exposed_communication_ms: Known
    efficiency: Known
    """T(1) / T(N) at the same batch a device."""
    peer: str | None
    """The fastest baseline of the same side that was timed with it; null for a baseline."""
    ratio_to_peer: Ratio | None
    """Its step_ms over the peer's."""
    folder: str


class Held(Struct, kw_only=True):
    """A prediction beside its measurement."""

    preset: str
    family: Family
    devices: int
    made_utc: str
    predicted_ms: Known
    ci95_ms: tuple[float, float] | None
    """Of the prediction, from windows drawn anew."""
    measured_ms: Known
    error: float | None
    """predicted / measured - 1; null until both are there."""


class Modelled(Struct, kw_only=True):
    """The model on so many devices."""

    step: Predicted
    efficiency: Known
    """T(1) measured / T(N) predicted; missing where T(N) was measured, since that tells it."""
    error: float | None
    """Predicted / measured - 1; null where this count was not measured."""


class Loss(Struct, kw_only=True):
    """One side trained on the same global batch on one and on several devices."""

    preset: str
    devices: int
    global_batch: int
    pair: list[str]
    verdict: str
    max_rel: float | None
    """Largest relative difference of the losses of a step."""
    tolerance: float | None
    tolerance_source: str | None


class Scaling(Struct, kw_only=True):
    """The file `scaling.json`."""

    schema_version: int
    device: str
    measured: list[Measured]
    left_out: dict[str, list[int]]
    """Contenders that were measured but stand for no family, with the numbers of devices."""
    predictions: list[Held]
    fits: list[Fit]
    model: list[Modelled]
    """MODEL, not measured."""
    assumed: NodeRecord
    assumptions: list[str]
    loss: list[Loss]
    reasons: dict[str, str]
    """Why a list is empty."""
    warnings: list[str]
    """What makes these numbers worth less than they look, and the next thing to do."""


def make(folders: Sequence[Path], assumed: NodeRecord) -> Scaling:
    """The whole record of what lies in these folders.

    Raises:
      RuleError: nothing was measured, or what was does not belong together.
    """
    found = points.read(folders)
    chosen, fits = points.best(found), fit.fit(found)
    loss, held = _losses(folders), _held(folders, chosen)
    counts = sorted({one.devices for one in found} | set(BEYOND))
    alone = {(preset, name): one for (preset, name, n), one in chosen.items() if n == 1}
    why = {"loss": "no loss check lies here", "predictions": "no prediction lies here"}
    return Scaling(
        schema_version=1,
        device=found[0].device,
        measured=[_measured(one, alone.get(key[:2])) for key, one in chosen.items()],
        predictions=held,
        fits=[fit.without_draws(one) for one in fits],
        left_out=_left_out(found, chosen),
        model=[_modelled(one, n, assumed, chosen) for one in fits for n in counts],
        assumed=assumed,
        assumptions=list(ASSUMPTIONS),
        loss=loss,
        reasons={name: why[name] for name, rows in (("loss", loss), ("predictions", held)) if not rows},
        warnings=points.of_trees(found),
    )


def _measured(point: Point, alone: Point | None) -> Measured:
    spread = point.step_ms
    how = f"median of {spread.n} windows, 10th to 90th percentile {spread.p10:.4g} to {spread.p90:.4g}"
    return Measured(
        preset=point.preset,
        family=point.family or FAMILIES[0],
        mode=point.mode,
        devices=point.devices,
        step_ms=Known(value=spread.median, source="measured", how=how),
        launch_us=_figure(point, "launch_us", point.launch_us.median if point.launch_us else None),
        exposed_communication_ms=_figure(point, "exposed_communication_ms", point.exposed_ms),
        efficiency=_efficiency(alone, Known(value=spread.median, source="measured", how=how)),
        peer=point.peer if point.peer and point.ratio_to_peer else None,
        ratio_to_peer=point.ratio_to_peer,
        folder=point.folder,
    )


def _figure(point: Point, name: str, value: float | None) -> Known:
    if value is None:
        return missing(point.reasons.get(name, "the side did not measure it"))
    return Known(value=value, source="measured", how=f"{name} of the run")


def _efficiency(alone: Point | None, step: Known) -> Known:
    if alone is None:
        return missing("its step on one device was not measured")
    if step.value is None:
        return missing(step.how)
    how = f"step_ms on one device ({alone.mode}) over that on all"
    return Known(value=alone.step_ms.median / step.value, source=step.source, how=how)


def _left_out(found: Sequence[Point], chosen: dict[tuple[str, Family, int], Point]) -> dict[str, list[int]]:
    shown = {(one.preset, one.mode, one.devices) for one in chosen.values()}
    others = sorted(
        {(one.mode, one.devices) for one in found if (one.preset, one.mode, one.devices) not in shown}
    )
    return {mode: [n for of, n in others if of == mode] for mode, _ in others}


def _modelled(
    one: Fit, devices: int, assumed: NodeRecord, chosen: dict[tuple[str, Family, int], Point]
) -> Modelled:
    step = fit.predict(one, devices, assumed.node)
    here = chosen.get((one.preset, one.family, devices))
    if here is None:
        alone = chosen.get((one.preset, one.family, 1))
        return Modelled(step=step, efficiency=_efficiency(alone, step.step_ms), error=None)
    # Two values of one ratio would contradict each other.
    told = missing("measured, see there")
    value = step.step_ms.value
    return Modelled(
        step=step, efficiency=told, error=value / here.step_ms.median - 1 if value is not None else None
    )


def _held(folders: Sequence[Path], chosen: dict[tuple[str, Family, int], Point]) -> list[Held]:
    rows = []
    for made in prediction.read(folders):
        for one in made.predictions:
            point = chosen.get((one.preset, one.family, made.devices))
            measured = missing("not measured")
            if point is not None:
                how = f"median of {point.step_ms.n} windows ({point.mode})"
                measured = Known(value=point.step_ms.median, source="measured", how=how)
            both = one.step_ms.value is not None and measured.value is not None
            rows.append(
                Held(
                    preset=one.preset,
                    family=one.family,
                    devices=made.devices,
                    made_utc=made.made_utc,
                    predicted_ms=one.step_ms,
                    ci95_ms=one.ci95_ms,
                    measured_ms=measured,
                    error=one.step_ms.value / measured.value - 1 if both else None,  # type: ignore[operator]
                )
            )
    return rows


def _losses(folders: Sequence[Path]) -> list[Loss]:
    """Every comparison of one with several devices."""
    rows = []
    for path in sorted(path for folder in folders for path in folder.glob(f"{LOSS}/*/compared.json")):
        result = read_result(path)
        about = json.loads((path.parent / "about.json").read_text())
        for one in result.comparisons:
            rows.append(
                Loss(
                    preset=about["preset"],
                    devices=about["devices"],
                    global_batch=about["global_batch"],
                    pair=one.pair,
                    verdict=one.verdict,
                    max_rel=one.loss.max_rel if one.loss else None,
                    tolerance=one.loss.tolerance if one.loss else None,
                    tolerance_source=one.loss.tolerance_source if one.loss else None,
                )
            )
    return sorted(rows, key=lambda row: (row.preset, row.devices, row.global_batch))
