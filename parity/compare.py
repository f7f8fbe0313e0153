"""`parity compare`: judges two saved runs, each side against itself, without a framework."""

import time
from pathlib import Path

from parity import against, folders
from parity.judge.align import Measured
from parity.judge.verdict import EXIT_CODES, gravest, judge, reasons
from parity.options import Compare
from parity.report import deliver
from parity.report.result import SCHEMA_VERSION, Result, RunRef, Seconds
from spec import codec
from spec.errors import ExitCode, RuleError
from spec.run import SIDES, RunSpec


def compare(options: Compare) -> ExitCode:
    """Judges and prints; writes no run folder. Returns the exit code.

    Raises:
      RuleError: a run cannot be found, or holds no run pass.
    """
    started = time.monotonic()
    deliver.check_target(options.json)
    found = [folders.find(text, Path(options.out)) for text in (options.run_a, options.run_b)]
    runs = [_ref(folder) for folder in found]
    pairs = _pairs(*found)
    judged = [judge(a, b) for a, b in pairs]
    numerics = gravest(judged) if judged else None
    result = Result(
        schema_version=SCHEMA_VERSION,
        command="compare",
        verdict=numerics.verdict if numerics else None,
        exit_code=int(EXIT_CODES[numerics.verdict] if numerics else ExitCode.SAME),
        reasons=reasons(judged),
        runs=runs,
        curves={},
        numerics=numerics,
        comparisons=judged,
        speed=None,
        capture=None,
        bench=[],
        launches=[],
        seconds=_seconds(time.monotonic() - started),
        unmeasured=dict.fromkeys(("speed", "capture"), "compare reads two runs; see against")
        | ({} if numerics else {"numerics": "the runs hold no run passes, only timed ones"}),
    )
    against.compare(result, found, options)
    deliver.deliver(result, None, options.json)
    return ExitCode(result.exit_code)


def _pairs(folder_a: Path, folder_b: Path) -> list[tuple[Measured, Measured]]:
    """Each side that both runs have against itself; where they share none, one against the other. None where
    both were timed and not run for their numbers."""
    both = (folder_a, folder_b)
    if all(_passes(one, "time") and not _passes(one, "run") for one in both):
        return []
    passes_a, passes_b = _run_passes(folder_a), _run_passes(folder_b)
    shared = [(side, side) for side in SIDES if side in passes_a and side in passes_b]
    across = [(next(iter(passes_a)), next(iter(passes_b)))]
    names = _names(folder_a, folder_b)
    return [
        (Measured(f"{names[0]} {a}", passes_a[a]), Measured(f"{names[1]} {b}", passes_b[b]))
        for a, b in shared or across
    ]


def _run_passes(folder: Path) -> dict[str, Path]:
    """The run pass of each side of a run: its first, which is in the run's own precision."""
    passes = _passes(folder, "run")
    if not passes:
        timed = bool(_passes(folder, "time"))
        raise RuleError(
            "A run that is judged holds a run pass.",
            f"{folder}: {'timed passes alone' if timed else 'none'}",
            "compare a benchmark with a benchmark, a run with a run" if timed else "make the run again",
        )
    return passes


def _passes(folder: Path, purpose: str) -> dict[str, Path]:
    """The first pass of a purpose of each side."""
    jobs = sorted(folder.glob("passes/*/job.json"))
    content = {path.parent: folders.read_json(path, "side", "purpose") for path in jobs}
    return {job["side"]: path for path, job in reversed(content.items()) if job["purpose"] == purpose}


def _names(folder_a: Path, folder_b: Path) -> tuple[str, str]:
    """The numbers of the folders, told apart where they are the same."""
    a, b = (folder.name.partition("_")[0] for folder in (folder_a, folder_b))
    return (a, b) if a != b else (f"A {a}", f"B {b}")


def _ref(folder: Path) -> RunRef:
    content = folders.read_run(folder)
    spec: RunSpec = codec.from_dict(RunSpec, content["spec"])
    return RunRef(
        folder=str(folder),
        name=spec.name,
        problem_sha256=spec.problem.sha256(),
        precision=spec.problem.precision,
        device=spec.execution.device,
        world_size=spec.execution.world_size,
        modes={side: spec.execution.mode(side) for side in content["backends"]},
        edits={
            side: [f"{edit['name']}={edit['value']:g}" for edit in edits]
            for side, edits in content["edits"].items()
        },
    )


def _seconds(total: float) -> Seconds:
    total = round(total, 3)
    return Seconds(total=total, launches=0.0, start_up=0.0, compile=0.0, jobs=0.0, judge=total)
