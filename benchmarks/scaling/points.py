"""What `parity bench` measured, read from run folders: one point a preset, number of devices and contender.

Must not: fit or predict.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from parity.bench import blocks
from parity.report.result import BenchRow, Result, read_result
from parity.report.speeds import Ratio, Spread
from parity.speed.figures import TimePass
from parity.speed.machine import NO_CHECKOUT, code
from parity.speed.spans import Parted
from spec import codec, trace
from spec.errors import RuleError, few
from spec.run import RunSpec

Family = Literal["torch", "torch ddp", "jax", "jax stock"]
FAMILIES: tuple[Family, ...] = ("torch", "torch ddp", "jax", "jax stock")
"""Steps that stand for each other as devices are added: the project's own in its fastest mode, DDP (on one
device eager, which it then is), and plain `jax.jit`."""
BYTES = {"float64": 8, "float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class Point:
    """One contender on so many devices."""

    preset: str
    devices: int
    family: Family | None
    """None for a baseline that exists on one number of devices alone: it can be a peer."""
    mode: str
    step_ms: Spread
    launch_us: Spread | None
    dispatch_us: Spread | None
    exposed_ms: float | None
    """Traced."""
    busy_ms: float | None
    """Traced."""
    collective_ms: float | None
    """Traced: all collectives of a step, hidden or not."""
    peer: str | None
    ratio_to_peer: Ratio | None
    windows_ms: tuple[tuple[float, ...], ...]
    """Raw step times of each pass."""
    draws_ms: tuple[float, ...]
    """Raw single-call dispatch times of rank 0."""
    gradient_bytes: int
    """What a step all-reduces."""
    rows_per_device: int
    precision: str
    device: str
    """Its name; `cpu` for all of them."""
    code: str
    """The tree of this project that it was measured with."""
    folder: str
    reasons: Mapping[str, str]
    """Why a figure is None."""


def family(side: str, mode: str) -> Family | None:
    """The family of a contender."""
    if not mode.startswith("baseline:"):
        return "torch" if side == "torch" else "jax"
    known: dict[str, Family] = {"eager": "torch ddp", "ddp": "torch ddp", "jit": "jax stock"}
    return known.get(mode.removeprefix("baseline:"))


def runs(folders: Iterable[Path]) -> list[Path]:
    """The run folders of benchmarks at one batch anywhere in these folders, by the time they were made."""
    found = {path.parent for folder in folders for path in folder.rglob("result.json")}
    single = [one for one in found if blocks.is_benchmark(one) and not _run(one).get("sweep")]
    return sorted(single, key=lambda one: (_run(one)["environment"]["utc"], one.name))


def read(folders: Iterable[Path]) -> list[Point]:
    """Every point; of what was measured several times, the last.

    Raises:
      RuleError: nothing was measured, or not at one batch a device, in one precision, on one kind of device.
    """
    folders = list(folders)
    found = {
        (one.preset, one.devices, one.family, one.mode): one for run in runs(folders) for one in _points(run)
    }
    if not found:
        raise RuleError(
            "A scaling study has measurements.",
            f"no run of parity bench in {', '.join(map(str, folders))}",
            "measure first: python -m benchmarks.scaling measure",
        )
    _check_alike(list(found.values()))
    return list(found.values())


def of_trees(points: Iterable[Point]) -> list[str]:
    """What a reader must know of points that were not all measured with one known tree of this project."""
    runs: dict[str, list[str]] = {}
    for one in points:
        if one.folder not in runs.setdefault(one.code, []):
            runs[one.code].append(one.folder)
    told = [f"{tree} ({few(sorted(folders), between=', ')})" for tree, folders in sorted(runs.items())]
    warnings = []
    if len(runs) > 1:
        warnings.append(
            f"the runs were measured with {len(runs)} trees of this project, and what changed between them "
            f"may be part of any ratio or fit: {'; '.join(told)}; next: measure all with one of them"
        )
    if NO_CHECKOUT in runs:
        warnings.append(
            f"which tree {few(sorted(runs[NO_CHECKOUT]), between=', ')} ran is not known, for lack of a "
            "checkout; next: measure from a clone"
        )
    return warnings


def best(points: Iterable[Point]) -> dict[tuple[str, Family, int], Point]:
    """The fastest of each family on each number of devices, by preset, family and devices."""
    found: dict[tuple[str, Family, int], Point] = {}
    for one in points:
        if one.family is None:
            continue
        key = (one.preset, one.family, one.devices)
        if key not in found or one.step_ms.median < found[key].step_ms.median:
            found[key] = one
    return dict(sorted(found.items(), key=lambda item: (item[0][0], FAMILIES.index(item[0][1]), item[0][2])))


def _run(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text())


def _points(folder: Path) -> Iterator[Point]:
    result, content = read_result(folder / "result.json"), _run(folder)
    spec: RunSpec = codec.from_dict(RunSpec, content["spec"])
    gpus = content["environment"]["gpus"] or [{"name": "unknown GPU"}]
    on_gpu = spec.execution.device == "cuda"
    for row in _rows(result):
        passes = _timed(folder, row)
        yield Point(
            preset=spec.name,
            devices=spec.execution.world_size,
            family=family(row.side, row.mode),
            mode=f"{row.side} {row.speed.mode}",
            step_ms=row.speed.step_ms,  # type: ignore[arg-type]
            launch_us=row.speed.launch_us,
            dispatch_us=row.speed.dispatch_us,
            exposed_ms=row.speed.exposed_communication_ms,
            busy_ms=row.speed.device_busy_ms,
            collective_ms=_traced(folder, row),
            peer=row.peer,
            ratio_to_peer=row.ratio_to_peer,
            windows_ms=tuple(tuple(one.step_ms) for one in passes if one.step_ms),
            draws_ms=tuple(us / 1e3 for one in passes for us in one.calls_us("dispatch")),
            gradient_bytes=_gradient_bytes(spec),
            rows_per_device=spec.problem.global_batch // spec.execution.world_size,
            precision=spec.problem.precision,
            device=gpus[0]["name"] if on_gpu else "cpu",
            code=code(content["environment"]),
            folder=folder.name,
            reasons=row.speed.reasons,
        )


def _rows(result: Result) -> list[BenchRow]:
    """Those with a step time; of several calls into one folder the last."""
    rows = sorted(result.bench, key=lambda row: row.invocation)
    return list({(row.side, row.mode): row for row in rows if row.speed.step_ms is not None}.values())


def _timed(folder: Path, row: BenchRow) -> list[TimePass]:
    """The passes that a row sums up: those of its own call."""
    made = [block for call in blocks.calls(folder) if call.number == row.invocation for block in call.blocks]
    return [one for block in made for one in block.finished(folder, (row.side, row.mode))]


def _traced(folder: Path, row: BenchRow) -> float | None:
    if row.speed.trace is None or row.speed.exposed_communication_ms is None:
        return None
    return collective_ms(folder / "passes" / row.speed.trace.folder)


def collective_ms(pass_folder: Path) -> float | None:
    """Mean sum of the collectives of a traced step in ms, of its settled steps; None without any."""
    if not (pass_folder / trace.FILE).exists():
        return None
    steps = Parted(trace.read(pass_folder)).settled
    spans = [span.duration_us for one in steps for span in one.work if span.kind == "collective"]
    return sum(spans) / 1e3 / sum(one.steps for one in steps) if spans else None


def _gradient_bytes(spec: RunSpec) -> int:
    return spec.problem.num_params * BYTES[spec.problem.profile.accumulate]


def _check_alike(points: Sequence[Point]) -> None:
    kinds = {one.device for one in points}
    batches = {(one.preset, one.rows_per_device, one.precision) for one in points}
    told = [f"{name}: {rows} rows a device, {precision}" for name, rows, precision in sorted(batches)]
    if len(kinds) > 1 or len(batches) > len({one.preset for one in points}):
        raise RuleError(
            "One study has one kind of device, and of a preset one batch a device in one precision.",
            few(sorted(kinds) if len(kinds) > 1 else told),
            "name the folder of one study",
        )
