"""The page's last part: where and how the run was measured, what the figures mean, how to do it again.

Must not: measure or judge.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parity.report.page import words
from parity.report.page.folder import RunFolder, read_object
from parity.report.result import Result
from spec.measure import FIGURES, Figure


@dataclass(frozen=True)
class Section:
    """What the page says of the run's conditions."""

    facts: list[tuple[str, str]]
    figures: list[Figure]
    command: str
    """The command line to type; empty where the run was asked for otherwise."""
    command_note: str


def section(result: Result, folder: RunFolder) -> Section:
    """Conditions, definitions of the figures that the page shows, and the command."""
    timed = bool(result.speed or result.bench)
    command, note = _command(result, folder)
    return Section(
        facts=[(name, value) for name, value in _facts(result, folder) if value],
        figures=list(FIGURES.values()) if timed else [],
        command=command,
        command_note=note,
    )


def _command(result: Result, folder: RunFolder) -> tuple[str, str]:
    argv = folder.run.get("argv")
    if result.command == "compare":
        return words.command(["compare", *(run.folder for run in result.runs)]), ""
    if not argv:
        return "", "run.json, which holds the command line, is not in this folder."
    if argv[0] == "library":
        target = argv[1] if len(argv) > 1 else "tiny"
        return "", f"The run was asked for from Python: parity.run({target!r}, ...)."
    return words.command(argv), ""


def _facts(result: Result, folder: RunFolder) -> Iterator[tuple[str, str]]:
    environment = folder.run.get("environment") or {}
    code = environment.get("code") or {}
    if code.get("commit"):
        dirty = ", with changes that were not committed" if code.get("dirty") else ""
        yield "code", f"commit {code['commit']}{dirty}"
    yield "begun", str(environment.get("utc") or "")
    yield "machine", _machine(environment)
    packages = environment.get("packages") or {}
    yield "packages", ", ".join(f"{name} {version}" for name, version in packages.items())
    yield "variables", ", ".join(f"{k}={v}" for k, v in (environment.get("variables") or {}).items())
    for run in result.runs:
        yield "problem", f"{run.name}, {run.precision}, hash {run.problem_sha256[:16]}"
    yield "timing", asked(folder)
    if result.comparisons and result.comparisons[0].loss is not None:
        yield "loss bound", result.comparisons[0].loss.tolerance_reason


def _machine(environment: dict[str, Any]) -> str:
    cpu = environment.get("cpu") or {}
    gpus = environment.get("gpus")
    cores = f"{cpu['usable']} of {cpu['count']} cores" if {"usable", "count"} <= cpu.keys() else ""
    parts = [str(cpu.get("model") or ""), cores]
    if gpus:
        names = [str(gpu.get("name", "a GPU")) if isinstance(gpu, dict) else str(gpu) for gpu in gpus]
        parts.append(", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)))
    elif environment:
        parts.append("no GPU")
    parts.append(str(environment.get("platform") or ""))
    return "; ".join(part for part in parts if part)


def asked(folder: RunFolder) -> str:
    """What the time passes were asked: calls of a benchmark may have asked differently."""
    passes = folder.of("time")
    asked: dict[str, list[str]] = {}
    for one in passes:
        timing = read_object(one.folder / "job.json").get("timing") or {}
        words = ""
        if "windows" in timing:
            words = (
                f"{timing['warmup_steps']} steps of warm-up, {timing['windows']} windows of "
                f"{timing['steps_per_window']} steps and {timing['calls']} single calls a pass; "
            )
        asked.setdefault(words, []).append(f"{one.side} {one.mode}".strip())
    return "; then ".join(f"{words}passes in this order: {', '.join(told)}" for words, told in asked.items())
