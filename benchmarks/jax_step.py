"""Where the time of one JAX training step goes: the same step in many forms and under many XLA flags.

    python -m benchmarks.jax_step --preset micro --out jax_step_micro.jsonl
    python -m benchmarks.jax_step --preset micro --devices 2 --variants shipped,collectives,all
    python -m benchmarks.jax_step --preset micro --variants dump,trace,vlog
    parity bench micro --backend jax --devices 2 --mode jax=jit:concurrent --windows 10 --steps-per-window 60

One line a variant goes to `--out` (an existing file is added to): raw samples, conditions, losses, and what
stands in the program. The variants `dump` and `vlog` also leave zip files beside it: XLA's dumps of the step,
and what its log says of command buffers. Variants of equal flags share processes; each has a time limit, and
one that fails or hangs is a line with its last words. A variant is a form of `benchmarks/jax_forms.py`, flags
of `FLAGS`, or both, as in `scan8@min1`.

What is measured is said in `benchmarks/jax_measure.py`, which each process runs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from itertools import groupby
from pathlib import Path
from typing import Any

SETS = "--xla_gpu_enable_command_buffer="
FLAGS: dict[str, str] = {
    "default": "",
    "off": SETS,
    "min1": "--xla_gpu_graph_min_graph_size=1",
    "collectives": f"{SETS}+COLLECTIVES",
    "while": f"{SETS}+WHILE",
    "all": f"{SETS}+COLLECTIVES,+WHILE,+CONVOLUTION --xla_gpu_graph_min_graph_size=1",
    "serialize": "--xla_gpu_command_buffer_scheduling_mode=SERIALIZE",
    "concurrent": "--xla_gpu_command_buffer_scheduling_mode=CONCURRENT",
    "skip_temp": "--xla_gpu_command_buffer_update_mode=SKIP_TEMP",
    "skip_profiled": "--xla_gpu_command_buffer_update_mode=SKIP_PROFILED",
    "no_triton": "--xla_gpu_enable_triton_gemm=false",
    "dump": "--xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*train_step.* --xla_dump_to={folder}",
    "trace": "--xla_enable_command_buffers_during_profiling=true",
    "vlog": "",
}
ENVIRON: dict[str, dict[str, str]] = {
    # Command buffers keep their addresses only in memory that the virtual-memory allocator gave.
    "skip_temp": {"XLA_PYTHON_CLIENT_ALLOCATOR": "vmm"},
    "skip_profiled": {"XLA_PYTHON_CLIENT_ALLOCATOR": "vmm"},
    "vlog": {
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_VMODULE": "command_buffer_conversion_pass=2,command_buffer_thunk=3",
    },
}
DEFAULT = (
    "shipped,ahead,late,unread,pinned,scan8,lean,trace,ahead@concurrent,late@concurrent,scan8@concurrent,fields,leaves,same_batch,jit_call,"
    "metrics_ring,ring_same_batch,donated_batch,no_readback,late_copy,excess,unroll8,unsharded,shipped@min1,"
    "shipped@serialize,shipped@off,scan8@while,shipped@while,scan8@all,shipped@skip_temp,shipped@concurrent,"
    "shipped@no_triton,dump,vlog"
)
WINDOWS, WINDOW_S, CALLS, BATCHES = 10, 0.3, 100, 16


def split(variant: str) -> tuple[str, str]:
    """(form, flags) of `scan8@while`, `scan8`, or `off`: the shipped form under these flags."""
    form, _, flags = variant.partition("@")
    return ("shipped", form) if form in FLAGS else (form, flags or "default")


def main() -> None:
    """Runs every variant and prints one line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="micro")
    parser.add_argument("--precision", default=None)
    parser.add_argument("--variants", default=DEFAULT)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out", default="jax_step.jsonl")
    parser.add_argument("--timeout-s", type=float, default=90.0, help="for one variant")
    parser.add_argument("--budget-s", type=float, default=540.0, help="no variant is started after it")
    options = parser.parse_args()
    started = time.monotonic()
    variants = options.variants.split(",")
    for flags, group in groupby(
        sorted(variants, key=lambda v: split(v)[1] != "default"), lambda v: split(v)[1]
    ):
        left = list(group)
        while left and time.monotonic() - started < options.budget_s:
            done, problem = run_group(options, left, flags)
            left = left[done:]
            if problem is not None and left:
                write(options.out, {"variant": left.pop(0), "preset": options.preset, "failed": problem})
        for variant in left:
            write(options.out, {"variant": variant, "preset": options.preset, "failed": "no time left"})


def write(out: str, row: dict[str, Any]) -> None:
    """Adds a line to the file, and prints its gist."""
    with open(out, "a") as file:
        file.write(json.dumps(row) + "\n")
    print(gist(row), flush=True)


def gist(row: dict[str, Any]) -> str:
    """The medians of a row."""
    if "failed" in row:
        return (
            f"{row['variant']:22} failed: {' '.join(row['failed'].split())[:120]} ... {row['failed'][-200:]}"
        )
    medians = {
        name: statistics.median(row[name])
        for name in ("window_ms", "stage_us", "launch_us", "read_us", "busy_launch_us")
    }
    figures = "  ".join(f"{name} {value:9.3f}" for name, value in medians.items())
    return f"{row['variant']:22} {figures}  loss {row['loss_11']:.6f}"


def run_group(options: argparse.Namespace, variants: list[str], flags: str) -> tuple[int, str | None]:
    """Starts the processes for variants of equal flags: (variants finished, what went wrong)."""
    with tempfile.TemporaryDirectory() as folder:
        environ = os.environ | ENVIRON.get(flags, {})
        own_flags = FLAGS[flags].format(folder=folder)
        environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {own_flags}".strip()
        rows, logs = Path(folder) / "rows.jsonl", [Path(folder) / f"log{r}" for r in range(options.devices)]
        rows.touch()
        processes = [start(options, variants, rank, rows, log, environ) for rank, log in enumerate(logs)]
        problem = watch(processes, rows, options.timeout_s)
        done = [json.loads(line) for line in rows.read_text().splitlines()]
        for row in done:
            write(options.out, row | {"xla_flags": environ["XLA_FLAGS"], "environ": ENVIRON.get(flags, {})})
        if flags in ("dump", "vlog"):
            keep(Path(options.out), flags, Path(folder))
        if problem is not None:
            problem += ": " + " | ".join(ends(log.read_text(errors="replace")) for log in logs)
        return len(done), problem


def ends(text: str) -> str:
    """The first and last lines of a log: an aborted process says why first, an exception last."""
    return text if len(text) < 2000 else f"{text[:600]} ... {text[-1400:]}"


def start(
    options: argparse.Namespace,
    variants: list[str],
    rank: int,
    rows: Path,
    log: Path,
    environ: dict[str, str],
) -> subprocess.Popen[bytes]:
    """One process of a group, its output in a file."""
    own = {}
    if options.devices > 1:
        own = {"JAX_NUM_PROCESSES": str(options.devices), "JAX_PROCESS_ID": str(rank)}
        own["JAX_COORDINATOR_ADDRESS"] = f"127.0.0.1:{20000 + os.getpid() % 20000}"
        if options.device == "cuda":
            own["JAX_LOCAL_DEVICE_IDS"] = str(rank)
    argv = [sys.executable, "-m", "benchmarks.jax_measure", "--out", str(rows)]
    argv += ["--preset", options.preset, "--devices", str(options.devices), "--device", options.device]
    argv += ["--variants", ",".join(variants)]
    argv += ["--precision", options.precision] if options.precision else []
    with log.open("wb") as file:
        return subprocess.Popen(argv, env=environ | own, stdout=file, stderr=subprocess.STDOUT)


def watch(processes: list[subprocess.Popen[bytes]], rows: Path, timeout_s: float) -> str | None:
    """Waits for the group; what went wrong, or None. A variant that takes too long ends it."""
    moved, lines = time.monotonic(), 0
    try:
        while True:
            codes = [process.poll() for process in processes]
            if any(codes):
                return f"exit codes {codes}"
            if all(code == 0 for code in codes):
                return None
            if (now := rows.read_bytes().count(b"\n")) != lines:
                moved, lines = time.monotonic(), now
            if time.monotonic() - moved > timeout_s:
                return f"no answer in {timeout_s} s"
            time.sleep(0.1)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def keep(out: Path, flags: str, folder: Path) -> None:
    """Puts what a diagnostic variant left into a zip file beside the rows."""
    wanted = ("thunk_sequence", "thunk_metadata", "gpu_after_optimizations.txt", "buffer-assignment", "log0")
    with zipfile.ZipFile(out.with_name(f"{out.stem}.{flags}.zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            if any(word in file.name for word in wanted):
                text = file.read_text(errors="replace")
                archive.writestr(file.name, text[:20_000_000])


if __name__ == "__main__":
    main()
