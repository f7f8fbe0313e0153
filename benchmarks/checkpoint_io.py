"""A checkpoint of a billion parameters, there and back: seconds, GB/s, peak memory against the tensors' size.

    python -m benchmarks.checkpoint_io --out checkpoint_io.jsonl
    python -m benchmarks.checkpoint_io --out checkpoint_io_moments.jsonl --moments

Each phase runs in a process of its own, so that each has a peak of its own. While the background thread
writes, the main thread wakes every millisecond: how late it wakes is how long a training loop would be held
up. `plain` is for comparison: the same bytes written and synced as often, without a format or a hash. One
JSON line a phase is written.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from spec import record
from spec.checkpoint import Position, Saver, find_checkpoint, open_checkpoint
from spec.checkpoint.write import SHARD_BYTES
from spec.environment import describe_environment
from spec.presets import run_spec
from spec.run import RunSpec
from spec.weights import Tensors, raw_bytes
from spec.workloads.gpt import GptSizes

SIZES = GptSizes(vocab=50304, seq_len=1024, num_layers=18, d_model=2048, num_heads=16)
"""A GPT of 1.01 billion parameters."""

PHASES = ("plain", "save", "load", "load again")
"""`load` follows a request to drop the files from the page cache, `load again` finds them there."""


def billion() -> RunSpec:
    """The run that the checkpoint says it belongs to."""
    spec = run_spec("gpt2-124m", devices=1)
    return dataclasses.replace(spec, problem=dataclasses.replace(spec.problem, sizes=SIZES))


TABLE = billion().problem.parameter_table()


def make_tensors(moments: bool) -> Tensors:
    """Float32 arrays of random bits under the names of a state."""
    bits = np.random.Generator(np.random.SFC64(0))
    return {
        f"{phase}/{row.name}": bits.integers(0, 2**32, row.shape, np.uint32).view(np.float32)
        for phase in ("param", *(("m", "v") if moments else ()))
        for row in TABLE
    }


def plain(folder: Path, moments: bool) -> dict[str, Any]:
    """The same bytes in one file, synced as often as shards are; and the hash alone."""
    tensors = make_tensors(moments)
    started = time.perf_counter()
    with (folder / "plain.bin").open("wb", buffering=0) as file:
        unsynced_bytes = 0
        for array in tensors.values():
            if unsynced_bytes + array.nbytes > SHARD_BYTES:
                os.fsync(file.fileno())
                unsynced_bytes = 0
            unsynced_bytes += array.nbytes
            file.write(raw_bytes(array))
        os.fsync(file.fileno())
    seconds = time.perf_counter() - started
    (folder / "plain.bin").unlink()
    started = time.perf_counter()
    for array in tensors.values():
        hashlib.sha256(raw_bytes(array))
    return {"seconds": seconds, "sha256_s": time.perf_counter() - started}


def save(folder: Path, moments: bool) -> dict[str, Any]:
    """How long `save` holds the caller, how long the write takes, and how late the caller wakes meanwhile."""
    tensors = make_tensors(moments)
    saver, late_ms, done = Saver(folder / "checkpoints"), [], threading.Event()
    before_bytes = peak_bytes()
    started = time.perf_counter()
    saver.save(billion(), Position(step=1, applied=1, skipped=0), tensors, {"side": "none"})
    call_s = time.perf_counter() - started
    tensors.clear()
    waiting = threading.Thread(target=lambda: (saver.close(), done.set()))
    waiting.start()
    while not done.is_set():
        slept = time.perf_counter()
        time.sleep(1e-3)
        late_ms.append(1e3 * (time.perf_counter() - slept - 1e-3))
    seconds = time.perf_counter() - started
    late_ms.sort()
    return {
        "seconds": seconds,
        "call_s": call_s,
        "peak_before_bytes": before_bytes,
        "late_ms": {
            "n": len(late_ms),
            "median": late_ms[len(late_ms) // 2],
            "p999": late_ms[int(0.999 * len(late_ms))],
            "max": late_ms[-1],
        },
    }


def load(folder: Path, moments: bool) -> dict[str, Any]:
    """Opens, verifies and places tensor by tensor into memory that is there already, as a state's is."""
    checkpoint = open_checkpoint(find_checkpoint(folder / "checkpoints"))
    # Zeros written, so that the pages count as a state's would.
    state = {
        name: np.full(entry.shape, 0, entry.dtype) for name, entry in checkpoint.manifest.tensors.items()
    }
    before_bytes = peak_bytes()
    started = time.perf_counter()
    checkpoint = open_checkpoint(checkpoint.path)
    open_s = time.perf_counter() - started
    for name, array in checkpoint.tensors.items():
        np.copyto(state[name], array)
    return {
        "seconds": time.perf_counter() - started,
        "open_s": open_s,
        "peak_before_bytes": before_bytes,
        "largest_tensor_bytes": max(array.nbytes for array in state.values()),
    }


def drop_from_page_cache(folder: Path) -> None:
    """Asks the kernel to forget the files' pages; they are on the disk, so it can."""
    for path in folder.rglob("*.safetensors"):
        handle = os.open(path, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def peak_bytes() -> int:
    """The largest resident memory of this process so far, mapped files included."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(phase: str, folder: Path, moments: bool) -> dict[str, Any]:
    """One phase, in this process."""
    if phase == "load":
        drop_from_page_cache(folder)
    row = {"plain": plain, "save": save}.get(phase, load)(folder, moments)
    size = sum(4 * row.size for row in TABLE) * (3 if moments else 1)
    row |= {"tensors_bytes": size, "gb_per_s": size / 1e9 / row["seconds"], "peak_bytes": peak_bytes()}
    row |= {"peak_over_tensors": row["peak_bytes"] / size, "load_average": os.getloadavg()[0]}
    return {"phase": phase, "moments": moments, **row}


def main() -> None:
    """Every phase in a process of its own; their lines into one file, after the environment's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSONL to write")
    parser.add_argument("--folder", type=Path, default=Path("checkpoint_io"), help="made, and removed again")
    parser.add_argument("--moments", action="store_true", help="three times the bytes")
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.phase is not None:
        record.write_json(given.out, measure(given.phase, given.folder, given.moments))
        return
    given.folder.mkdir(parents=True)
    answer = given.folder / "phase.json"
    try:
        with record.Lines(given.out) as lines:
            lines.write({"environment": describe_environment()})
            for phase in PHASES:
                command = [*("-m", "benchmarks.checkpoint_io", "--phase", phase), "--out", str(answer)]
                command += ["--folder", str(given.folder), *(["--moments"] if given.moments else [])]
                subprocess.run([sys.executable, *command], check=True)
                lines.write(row := json.loads(answer.read_text()))
                print(
                    f"{phase:10} {row['seconds']:7.1f} s  {row['gb_per_s']:5.2f} GB/s  "
                    f"peak {row['peak_over_tensors']:.2f} of {row['tensors_bytes'] / 1e9:.2f} GB"
                )
    finally:
        shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
