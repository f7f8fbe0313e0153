"""What a step's launches cost by CUPTI, both sides alike, and what having the tracer there costs.

    python -m benchmarks.trace_step --out trace_step                       # micro on one and two GPUs
    python -m benchmarks.trace_step --out try --preset toy-mlp --device cpu --devices 1

For each side, mode and number of devices: timed without the tracer, with it (CUPTI loaded, nothing
collected), with it again and without it again, each in processes of its own; then one traced pass. Figures
are those of `spec/measure.py`; `harness` is step_ms with the tracer over step_ms without, wanted within 1 %.
Everything goes to OUT: the passes as they were written, and `trace_step.json` with all figures.
"""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from parity.cluster import Cluster
from parity.commands import side_commands
from parity.launch import launch
from parity.speed import perfetto, statistics, traces
from parity.speed.figures import TimePass
from parity.training import TIMING
from spec import record, trace
from spec.job import Job
from spec.presets import run_spec
from spec.run import AUTO_MODES, Execution

MODES = {
    "cuda": {"torch": ("graph+inductor", "graph", "baseline:eager"), "jax": ("jit", "baseline:jit")},
    "cpu": {"torch": ("eager",), "jax": ("jit",)},
}
WANTED = 0.01
"""How far the tracer's presence may move step_ms."""


@dataclass(frozen=True)
class Row:
    """One side in one mode on so many devices."""

    side: str
    mode: str
    devices: int


def measure(row: Row, preset: str, device: str, folder: Path) -> dict[str, Any]:
    """The passes of a row, and what they say."""
    auto = AUTO_MODES[device]
    modes = {f"{side}_mode": row.mode if side == row.side else auto[side] for side in auto}
    execution = Execution(device=device, **modes)  # type: ignore[arg-type]
    spec = run_spec(preset, devices=row.devices, execution=execution)
    passes: dict[str, list[Path]] = {"without": [], "with": [], "trace": []}
    for number, what in enumerate(("without", "with", "with", "without", "trace")):
        out = folder / f"{row.side}_{row.mode.replace(':', '-')}_{row.devices}" / f"{number}_{what}"
        job = Job(
            side=row.side,
            purpose="trace" if what == "trace" else "time",
            spec=spec,
            mode=row.mode,
            steps=spec.problem.steps,
            out=str(out),
            timing=TIMING[device],
        )
        commands = side_commands(
            row.side, [job.write()], device, row.devices, Cluster(), traced=what != "without"
        )
        ended = launch(commands, [out], out.with_suffix(".log"), timeout_s=600)
        if ended.how != "done":
            return {"failed": f"{out.name}: {ended.how}", "error": ended.error, "log": list(ended.log_tail)}
        passes[what].append(out)
    return _figures(passes)


def _figures(passes: dict[str, list[Path]]) -> dict[str, Any]:
    (traced,) = passes["trace"]
    samples = {what: [TimePass(folder).step_ms for folder in passes[what]] for what in ("with", "without")}
    harness = statistics.ratio(samples["with"], samples["without"])
    assert harness is not None
    figures, reasons = traces.read(traced, passes["without"] + passes["with"])
    perfetto.write(trace.read(traced), traced, traced.parent.name)
    step_ms = statistics.spread([ms for one in samples["without"] for ms in one])
    known = {"harness": harness, "step_ms": step_ms, **figures}
    return {
        **msgspec.to_builtins(known),
        "reasons": reasons,
        "harness_within_wanted": abs(harness.median - 1) < WANTED,
    }


def main() -> None:
    """Measures every row, the rest of them too where one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", default="micro")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--devices", default="1,2")
    asked = parser.parse_args()
    if asked.device == "cuda":
        # Each process of XLA tunes anew otherwise, and the traced program can be another than the timed one.
        kept = asked.out.absolute() / "autotuned"
        kept.mkdir(parents=True, exist_ok=True)
        flags = [os.environ.get("XLA_FLAGS", ""), f"--xla_gpu_per_fusion_autotune_cache_dir={kept}"]
        os.environ["XLA_FLAGS"] = " ".join(filter(None, flags))
    found = []
    for devices in map(int, asked.devices.split(",")):
        for side, modes in MODES[asked.device].items():
            for mode in modes:
                row = Row(side, mode, devices)
                figures = measure(row, asked.preset, asked.device, asked.out.absolute())
                found.append({"side": side, "mode": mode, "devices": devices, **figures})
                record.write_json(asked.out / "trace_step.json", found)
                print(_line(found[-1]), flush=True)


def _line(row: dict[str, Any]) -> str:
    name = f"{row['side']} {row['mode']} x{row['devices']}"
    if "failed" in row:
        return f"{name}: {row['failed']} {row['error'] or row['log'][-3:]}"
    shown = ("launch_calls_per_step", "launch_api_us_per_step", "kernels_per_step", "device_busy_ms")
    shown += ("device_idle_share", "exposed_communication_ms")
    figures = ", ".join(f"{key} {row[key]:.4g}" for key in shown if row[key] is not None)
    return (
        f"{name}: step_ms {row['step_ms']['median']:.4g}, harness {row['harness']['median']:.4f}, "
        f"by {row['trace']['instrument']}: {figures or next(iter(row['reasons'].values()), '')}"
    )


if __name__ == "__main__":
    main()
