"""Writes `time` passes and run folders as sides and referee write them, samples given: nothing is timed."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parity.bench.blocks import Block, new_call
from parity.bench.contenders import Contender
from parity.speed.figures import TimePass
from spec import codec, record
from spec.job import Job, Timing
from spec.presets import run_spec
from spec.run import RunSpec

ENVIRONMENT: dict[str, Any] = {
    "utc": "2026-01-01T00:00:00+00:00",
    "host_hash": "aaaa",
    "python": {"version": "3.12.0"},
    "cpu": {"model": "a CPU", "usable": 2, "count": 2},
    "packages": {"torch": "2.11.0", "jax": "0.11.2"},
    "variables": {"OMP_NUM_THREADS": "1"},
    "code": {"commit": "c0ffee", "dirty": False, "diff_sha256": None},
    "driver": None,
    "gpus": None,
}


def spec_of(batch: int = 8, steps: int = 10) -> RunSpec:
    """toy-mlp on one CPU process with a global batch."""
    return run_spec("toy-mlp", steps=steps, global_batch=batch)


def time_pass(
    folder: Path,
    contender: Contender,
    step_ms: Sequence[float],
    spec: RunSpec | None = None,
    dispatch_us: Sequence[float] = (100.0, 101.0, 102.0),
    peak_mem_bytes: int | None = None,
    ended: float = 1e9,
    initial: bool | None = True,
) -> TimePass:
    """A finished pass with these windows, one a second from `ended` on."""
    side, mode = contender
    spec = spec or spec_of()
    Job(side=side, purpose="time", spec=spec, mode=mode, steps=spec.problem.steps, out=str(folder)).write()
    record.write_json(
        folder / "manifest.json",
        {
            "mode_ran": mode,
            "environment": ENVIRONMENT,
            "compile_s": None,
            "capture": None,
            "reasons": {"compile_s": "nothing was compiled"},
        },
    )
    with record.Lines(folder / "windows.jsonl") as lines:
        reason = None if initial else "it reads otherwise"
        lines.write({"kind": "start", "initial": initial, "reason": reason})
        for number, each in enumerate(step_ms):
            lines.write({"kind": "window", "steps": 1, "wall_s": each / 1e3, "ended": ended + number})
        for us in dispatch_us:
            lines.write({"kind": "dispatch", "us": us})
        memory_reason = "no count" if peak_mem_bytes is None else None
        lines.write({"kind": "memory", "peak_mem_bytes": peak_mem_bytes, "reason": memory_reason})
    record.write_json(folder / "digest.rank0.json", {"step": len(step_ms)})
    record.write_json(folder / "done.json", {"seconds": 0.5})
    return TimePass(folder)


def run_folder(folder: Path, spec: RunSpec | None = None, **changes: Any) -> Path:
    """A run folder without passes; keyword arguments change what surrounds it."""
    spec = spec or spec_of()
    content = {
        "spec": codec.to_dict(spec),
        "backends": ["torch", "jax"],
        "edits": {},
        "sweep": changes.pop("sweep", None),
        "environment": ENVIRONMENT | changes,
    }
    record.write_json(folder / "run.json", content)
    return folder


def block(
    folder: Path,
    step_ms: dict[Contender, Sequence[Sequence[float]]],
    batch: int = 8,
    first: int = 1,
    spec: RunSpec | None = None,
) -> Block:
    """A block written into a run folder: for each contender the windows of each of its passes."""
    names, number = [], first
    for turn in range(2):
        for contender, passes in step_ms.items():
            side, mode = contender
            name = f"{number:03d}_{side}_time_{mode.replace(':', '-')}"
            names.append(name)
            number += 1
            if turn < len(passes):
                time_pass(folder / "passes" / name, contender, passes[turn], spec or spec_of(batch))
    batch = spec.problem.global_batch if spec else batch
    return Block(batch=batch, contenders=list(step_ms), passes=names)


def called(folder: Path, *blocks: Block, ended: str | None = "done") -> None:
    """Writes down a call that measured these blocks."""
    call = new_call(folder, ["bench", "toy-mlp"], Timing(), ENVIRONMENT, blocks)
    call.ended = ended
    call.write(folder)


def with_steps(spec: RunSpec, steps: int) -> RunSpec:
    """Another problem: other steps, so another hash."""
    return dataclasses.replace(spec, problem=dataclasses.replace(spec.problem, steps=steps))
