"""Puts the parts of a `Result` together from what a held run left in its folder.

Must not: start anything or print.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parity.folders import RUN
from parity.judge.align import Curve, Measured, read_curve
from parity.judge.chain import Chain
from parity.plan import Plan
from parity.report.result import (
    Capture,
    CurvePoint,
    LaunchRecord,
    RunRef,
    Seconds,
    SideCurve,
    Speed,
)
from parity.report.speeds import SpeedWarning
from parity.session import Held
from parity.speed import conditions, statistics
from parity.speed import warnings as speed_warnings
from parity.speed.figures import TimePass, side_speed
from spec import codec, record
from spec.environment import describe_environment
from spec.errors import ExitCode
from spec.job import Job
from spec.run import SIDES

_CURVE_POINTS = 10
"""Steps of a side that a result and the table of one side show, beside the last."""


def write_run(
    folder: Path, plan: Plan, argv: Sequence[str], stated: Mapping[str, object] | None = None
) -> None:
    """`run.json`: the spec, the command line and what surrounds the run; and what was stated besides."""
    content = {
        "argv": list(argv),
        "spec": codec.to_dict(plan.spec),
        "backends": list(plan.backends),
        "edits": {side: codec.to_dict(edits) for side, edits in plan.edits.items()},
        "resumed": {side: str(path) for side, path in plan.start.checkpoints.items()},
        "handoff": [stretch.first for stretch in plan.handoff[1:]],
        "environment": describe_environment(),
        **(stated or {}),
    }
    record.write_json(folder / RUN, content)


def run_ref(folder: Path, plan: Plan) -> RunRef:
    """The run as a result names it."""
    execution = plan.spec.execution
    return RunRef(
        folder=str(folder),
        name=plan.spec.name,
        problem_sha256=plan.spec.problem.sha256(),
        precision=plan.spec.problem.precision,
        device=execution.device,
        world_size=execution.world_size,
        modes={side: execution.mode(side) for side in plan.backends},
        edits={side: [f"{edit.name}={edit.value:g}" for edit in edits] for side, edits in plan.edits.items()},
        resumed={side: str(path) for side, path in plan.start.checkpoints.items()},
    )


def finished(held: Sequence[Held], purpose: str) -> list[Job]:
    """The jobs of a purpose that ended well, in the order they were run."""
    jobs = [job for item in held for job in item.turn.jobs]
    return [job for job in jobs if job.purpose == purpose and (Path(job.out) / "done.json").exists()]


def run_passes(held: Sequence[Held]) -> dict[str, Measured]:
    """The finished run pass of each side: its first, which is in the run's own precision."""
    found: dict[str, Measured] = {}
    for job in finished(held, "run"):
        found.setdefault(job.side, Measured(job.side, Path(job.out)))
    return found


def handed_off(held: Sequence[Held]) -> Chain | None:
    """The run that changed sides; None where none was asked for, or a stretch was not finished."""
    asked = [job for item in held for job in item.turn.jobs if job.purpose == "handoff"]
    done = finished(held, "handoff")
    if not asked or len(done) < len(asked):
        return None
    parts = tuple(Measured(f"{job.side} to step {job.steps}", Path(job.out)) for job in done)
    return Chain("-".join(job.side for job in done), parts[0].folder, parts=parts)


def curves(held: Sequence[Held]) -> dict[str, SideCurve]:
    """The training of each side, thinned; that of a side which was ended early as far as it went."""
    jobs = [job for item in held for job in item.turn.jobs if job.purpose == "run"]
    written = [job for job in jobs if (Path(job.out) / "steps.rank0.jsonl").exists()]
    begun = {job.side: Path(job.out) for job in reversed(written)}
    return {side: _side_curve(read_curve(folder, _ranks_written(folder))) for side, folder in begun.items()}


def _ranks_written(folder: Path) -> int:
    """Ranks that wrote steps: all of a finished run, those of this host where there are several."""
    return len(list(folder.glob("steps.rank*.jsonl")))


def _side_curve(curve: Curve) -> SideCurve:
    stride = max(1, -(-curve.num_steps // _CURVE_POINTS))
    shown = [index for index in range(curve.num_steps) if index % stride == 0 or index == curve.num_steps - 1]
    return SideCurve(
        first_step=curve.first_step,
        steps=curve.num_steps,
        tokens=sum(curve.tokens),
        skipped=curve.skipped[-1] if curve.skipped else 0,
        points=[
            CurvePoint(
                step=curve.first_step + index,
                loss=repr(float(curve.loss[index])),
                grad_norm=repr(float(curve.grad_norm[index])),
                lr=repr(float(curve.lr[index])),
            )
            for index in shown
        ],
    )


def speed(held: Sequence[Held]) -> Speed | None:
    """Figures of both sides' own steps and their ratio; None where nothing was timed."""
    passes = {
        side: [TimePass(Path(job.out)) for job in finished(held, "time") if _is_own(job, side)]
        for side in SIDES
    }
    if not any(passes.values()):
        return None
    samples = {side: [item.step_ms for item in own] for side, own in passes.items()}
    ratio = statistics.ratio(samples["torch"], samples["jax"])
    reasons = {} if ratio else {"ratio": "only one side was timed"}
    if ratio is None:
        reasons["verdict"] = reasons["ratio"]
    return Speed(
        torch=side_speed(passes["torch"]),
        jax=side_speed(passes["jax"]),
        ratio=ratio,
        verdict=statistics.verdict(ratio) if ratio else None,
        rule=statistics.RULE,
        reasons=reasons,
    )


def warnings(held: Sequence[Held], folder: Path) -> list[SpeedWarning]:
    """What makes the figures of `speed` worth less than they look."""
    seen = conditions.read(folder / "launches")
    found = list(speed_warnings.of_machine(seen))
    for side in SIDES:
        own = [TimePass(Path(job.out)) for job in finished(held, "time") if _is_own(job, side)]
        if own:
            found += speed_warnings.of_contender(f"{side} {own[0].job.mode}", own, seen)
    return found


def _is_own(job: Job, side: str) -> bool:
    """Whether a job timed this project's step of a side, and no baseline."""
    return job.side == side and job.mode == job.spec.execution.mode(side)


def capture(held: Sequence[Held]) -> Capture:
    """What each side says of its captured or compiled step."""
    found: dict[str, Any] = {}
    own = [Path(side.folder) for side in run_passes(held).values()]
    jobs = [job for job in finished(held, "run") if Path(job.out) in own]
    for job in [*jobs, *finished(held, "time")]:
        manifest = json.loads((Path(job.out) / "manifest.json").read_text())
        if not job.mode.startswith("baseline:") and manifest["capture"]:
            found[job.side] = manifest["capture"]
    reasons = {side: "the side recorded no capture" for side in SIDES if side not in found}
    return Capture(torch=found.get("torch"), jax=found.get("jax"), reasons=reasons)


def launches(held: Sequence[Held]) -> list[LaunchRecord]:
    """Every launch, how it ended, and where its time went."""
    return [_launch_record(item) for item in held]


def _launch_record(item: Held) -> LaunchRecord:
    folders = [Path(job.out) for job in item.turn.jobs]
    seconds = {folder.name: _seconds(folder) for folder in folders if (folder / "done.json").exists()}
    compiling, reasons = _compiling([folder for folder in folders if folder.name in seconds])
    whole = item.ended.how == "done"
    return LaunchRecord(
        side=item.turn.side,
        ended=item.ended.how,  # type: ignore[arg-type]
        exit_codes=list(item.ended.exit_codes),
        seconds=round(item.ended.seconds, 3),
        passes=[folder.name for folder in folders],
        log=f"launches/{item.log.name}",
        job_seconds=seconds,
        compile_s=compiling,
        start_up_s=round(item.ended.seconds - sum(seconds.values()), 3) if whole else None,
        message=failure_message(item),
        log_tail=list(item.ended.log_tail),
        reasons=reasons,
    )


def failure_message(item: Held) -> str:
    """What went wrong in a launch, in one line; empty where nothing did."""
    ended, side = item.ended, item.turn.side
    where = f" in {ended.failed_pass.name}" if ended.failed_pass else ""
    if ended.how == "done":
        return ""
    if ended.error is not None:
        error = {name: str(value) for name, value in ended.error.items()}
        mend = f"; mend: {error['mend']}" if error["mend"] else ""
        return f"{side}{where}, rank {error['rank']}: {error['rule']} found: {error['numbers']}{mend}"
    if ended.how == "timeout":
        return f"{side}{where} wrote nothing for the time-out and was ended after {ended.seconds:.0f} s"
    if ended.how == "interrupted":
        return f"{side}{where} was interrupted after {ended.seconds:.0f} s"
    return f"{side}{where} {ended.how}, exit codes {list(ended.exit_codes)}"


def failure(held: Sequence[Held]) -> tuple[ExitCode, str]:
    """The exit code and message of the launch that failed; SAME and nothing where none did."""
    for item in held:
        if item.ended.code != ExitCode.SAME:
            return item.ended.code, failure_message(item)
    return ExitCode.SAME, ""


def seconds(records: Sequence[LaunchRecord], total: float, judged: float) -> Seconds:
    """Where the time of a whole command went."""
    launched = sum(item.seconds for item in records)
    in_jobs = sum(sum(item.job_seconds.values()) for item in records)
    # A process that does one step's jobs compiles it once and says so in each of them.
    compiling = sum(sum({one for one in item.compile_s.values() if one is not None}) for item in records)
    return Seconds(
        total=round(total, 3),
        launches=round(launched, 3),
        start_up=round(launched - in_jobs, 3),
        compile=round(compiling, 3),
        jobs=round(in_jobs - compiling, 3),
        judge=round(judged, 3),
    )


def _seconds(folder: Path) -> float:
    return float(json.loads((folder / "done.json").read_text())["seconds"])


def _compiling(folders: Sequence[Path]) -> tuple[dict[str, float | None], dict[str, str]]:
    """Seconds that each pass compiled for, and why some do not say so."""
    manifests = {folder.name: json.loads((folder / "manifest.json").read_text()) for folder in folders}
    found = {name: manifest["compile_s"] for name, manifest in manifests.items()}
    unknown = "the side did not say why"
    return found, {
        name: manifests[name]["reasons"].get("compile_s", unknown)
        for name, seconds in found.items()
        if seconds is None
    }
