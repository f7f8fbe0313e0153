"""What the smaller numbers of devices say of a larger one, written down before that one is measured."""

import datetime
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.scaling import fit, points, uncertainty
from benchmarks.scaling.fit import Fit, Predicted
from benchmarks.scaling.model import Link, Node
from benchmarks.scaling.points import Point
from parity.report.result import to_json
from spec.errors import RuleError, few


class CannotPredict(RuleError):
    """There is nothing, or no longer anything, to say of a count before it is measured."""


class NodeRecord(Struct, kw_only=True):
    """What was assumed of nodes and what joins them."""

    devices: int
    gb_per_s: float
    """Between nodes, for each device."""
    latency_us: float
    """Of one hop between nodes."""

    @property
    def node(self) -> Node:
        """As the model takes it."""
        return Node(self.devices, Link(self.gb_per_s * 1e6, self.latency_us / 1e3))


class Prediction(Struct, kw_only=True):
    """The file `prediction_N.json`."""

    schema_version: int
    devices: int
    made_utc: str
    runs: dict[str, str]
    """The runs that it was fitted on, with the SHA-256 of each one's result."""
    assumed: NodeRecord
    fits: list[Fit]
    predictions: list[Predicted]


def path_of(folder: Path, devices: int) -> Path:
    """Where the prediction for so many devices lies."""
    return folder / f"prediction_{devices}.json"


def write(folders: Iterable[Path], devices: int, out: Path, assumed: NodeRecord) -> Path:
    """Predicts so many devices from all smaller counts in these folders; returns the file.

    Raises:
      RuleError: the prediction is there already.
      CannotPredict: that count is measured already, no smaller one is, or they tell nothing of it.
    """
    folders, path = list(folders), path_of(out, devices)
    if path.exists():
        raise RuleError(
            "A prediction is made once.", f"{path} is there", "measure that count, or name another --out"
        )
    smaller = _smaller(points.read(folders), devices)
    fits, sure = fit.fit(smaller), uncertainty.intervals(smaller, devices, assumed.node)
    used = {one.folder for one in smaller}
    steps = [fit.predict(one, devices, assumed.node) for one in fits]
    _check_any(steps, sorted({one.devices for one in smaller}))
    made = Prediction(
        schema_version=1,
        devices=devices,
        made_utc=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        runs={run.name: _sha256(run / "result.json") for run in points.runs(folders) if run.name in used},
        assumed=assumed,
        fits=[fit.without_draws(one) for one in fits],
        predictions=[
            msgspec.structs.replace(step, ci95_ms=sure.get((step.preset, step.family))) for step in steps
        ],
    )
    out.mkdir(parents=True, exist_ok=True)
    with path.open("x") as file:
        file.write(to_json(made))
    return path


def _smaller(found: Sequence[Point], devices: int) -> list[Point]:
    """What a prediction may know."""
    if late := sorted({one.folder for one in found if one.devices == devices}):
        raise CannotPredict(
            "A prediction is made before its measurement.",
            f"{devices} devices are measured in {late[0]}",
            "predict a count that is not measured yet",
        )
    smaller = [one for one in found if one.devices < devices]
    if not smaller:
        raise CannotPredict(
            "A prediction is made from smaller numbers of devices.",
            f"{devices} devices, measured: {sorted({one.devices for one in found})}",
            "measure fewer devices first",
        )
    return smaller


def _check_any(steps: Sequence[Predicted], counts: Sequence[int]) -> None:
    """A file without a number would stand in the way of one with numbers, since it is made once."""
    if any(one.step_ms.value is not None for one in steps):
        return
    reasons = dict.fromkeys(one.step_ms.how for one in steps)
    raise CannotPredict(
        "A prediction has a number: the all-reduce of a step must have been seen on some devices.",
        f"measured on {', '.join(map(str, counts))}: {few(list(reasons))}",
        "measure 1 and a second count first",
    )


def read(folders: Iterable[Path]) -> list[Prediction]:
    """All predictions in these folders, by number of devices.

    Raises:
      RuleError: one cannot be read.
    """
    found = []
    for path in sorted({path.resolve() for folder in folders for path in folder.glob("prediction_*.json")}):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Prediction))
        except msgspec.DecodeError as error:
            raise RuleError("A saved prediction is whole.", f"{path}: {error}", "restore it") from None
    return sorted(found, key=lambda one: one.devices)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
