"""The figures of one side from its time passes: raw samples of all passes, pooled, then summed up.

What a side could not measure stays null, with the side's own reason or ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from parity.folders import read_json
from parity.report.result import SideSpeed
from parity.speed import traces, tracing
from parity.speed.statistics import spread
from spec import measure, record
from spec.job import Job, read_job
from spec.workloads import step_flops

_NO_TRACE = "needs a trace, and this run has none that was finished: --trace makes one"


@dataclass(frozen=True)
class TimePass:
    """What one `time` job wrote down."""

    folder: Path

    @cached_property
    def job(self) -> Job:
        """What was asked."""
        return read_job(self.folder / "job.json")

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What the side said of itself."""
        return read_json(self.folder / "manifest.json")

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Every raw sample."""
        path = self.folder / "windows.jsonl"
        return list(record.read_lines(path)) if path.exists() else []

    @property
    def steps(self) -> int:
        """Steps made, warm-up and single calls included."""
        return int(read_json(self.folder / "digest.rank0.json")["step"])

    def check(self) -> None:
        """Reads all that its figures are made of, and computes nothing.

        Raises:
          RuleError: something of it cannot be read.
        """
        _ = self.manifest, self.records, self.steps

    @property
    def windows(self) -> list[dict[str, Any]]:
        """The records of its windows, in order."""
        return [item for item in self.records if item["kind"] == "window"]

    @property
    def step_ms(self) -> list[float]:
        """One mean step time a window."""
        return [1e3 * item["wall_s"] / item["steps"] for item in self.windows]

    @property
    def start(self) -> dict[str, Any] | None:
        """What the side says of the state that its windows began with."""
        return next((item for item in self.records if item["kind"] == "start"), None)

    def calls_us(self, kind: str) -> list[float]:
        """Samples of `dispatch` or `launch`."""
        return [item["us"] for item in self.records if item["kind"] == kind]


def side_speed(passes: Sequence[TimePass]) -> SideSpeed | None:
    """The figures of passes of one side in one mode, with those of the trace that was made beside them; None
    where none was finished."""
    if not passes:
        return None
    manifest = passes[0].manifest
    reasons = dict.fromkeys(tracing.FIGURES, _NO_TRACE) | dict(manifest["reasons"])
    of_trace: dict[str, Any] = dict.fromkeys(tracing.FIGURES)
    folders = [item.folder for item in passes]
    if (traced := traces.find(folders)) is None:
        reasons["trace"] = _NO_TRACE
    else:
        of_trace, why_not = traces.read(traced, folders)
        reasons |= why_not
    step_ms = spread([sample for item in passes for sample in item.step_ms])
    memory, mfu = _peak_memory(passes, reasons), None
    if step_ms is not None:
        mfu, why_not = _mfu(passes[0], step_ms.median)
        if why_not:
            reasons["mfu"] = why_not
    compile_s = [item.manifest["compile_s"] for item in passes if item.manifest["compile_s"] is not None]
    capture = manifest["capture"] or {}
    speed = SideSpeed(
        mode=manifest["mode_ran"],
        step_ms=step_ms,
        launch_us=spread([sample for item in passes for sample in item.calls_us("launch")]),
        dispatch_us=spread([sample for item in passes for sample in item.calls_us("dispatch")]),
        **of_trace,
        mfu=mfu,
        peak_mem_bytes=memory,
        # A later launch finds what an earlier one left in caches, so the longest is the compilation.
        compile_s=max(compile_s, default=None),
        capture_s=capture.get("capture_s"),
        reasons=reasons,
        initial_state=_initial_state(passes, reasons),
    )
    _explain_rest(speed)
    return speed


def _initial_state(passes: Sequence[TimePass], reasons: dict[str, str]) -> bool | None:
    """Whether the windows of all passes began with the state before warm-up."""
    starts = [one.start or {"initial": None, "reason": "the pass does not say"} for one in passes]
    unknown = [start["reason"] for start in starts if start["initial"] is None]
    if unknown:
        reasons["initial_state"] = unknown[0]
        return None
    return all(start["initial"] for start in starts)


def _peak_memory(passes: Sequence[TimePass], reasons: dict[str, str]) -> int | None:
    entries = [item for one in passes for item in one.records if item["kind"] == "memory"]
    known = [item["peak_mem_bytes"] for item in entries if item["peak_mem_bytes"] is not None]
    if not known and entries and entries[0].get("reason"):
        reasons["peak_mem_bytes"] = entries[0]["reason"]
    # A process counts from its beginning, other contenders that it timed before included.
    return min(known, default=None)


def _mfu(item: TimePass, step_ms: float) -> tuple[float | None, str | None]:
    spec = item.job.spec
    if spec.execution.device == "cpu":
        return None, "no peak is known for a CPU"
    gpus = item.manifest["environment"].get("gpus") or [{"name": None}]
    profile = spec.problem.profile
    flops = step_flops(spec.problem.sizes, spec.problem.global_batch)
    if flops is None:
        return None, "no formula for the operations of a pair's models"
    dtype = "tf32" if profile.matmul == "tf32" else profile.compute
    return measure.mfu(flops / spec.execution.world_size, step_ms, str(gpus[0]["name"]), dtype)


def _explain_rest(speed: SideSpeed) -> None:
    """Every null has a reason."""
    for name in measure.FIGURES:
        if getattr(speed, name) is None:
            speed.reasons.setdefault(name, "the side did not measure it")
        else:
            speed.reasons.pop(name, None)
