"""One process of `benchmarks/jax_step.py`: measures some forms of the step one after another, a line each.

window_ms: wall time a step of back-to-back calls, staging of the rows and reading of metrics inside.
stage_us, launch_us, read_us: host time of the parts of one call on an idle device. busy_launch_us: a launch
within a window. loss_1, loss_11: the loss that the first and the eleventh call end with: whether two forms
compute the same. A variant under the flags `trace` is profiled after it was timed.
"""

import argparse
import collections
import gc
import glob
import itertools
import json
import re
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.jax_forms import FORMS, Shipped
from benchmarks.jax_step import split
from jax_impl import parallel, runtime
from jax_impl.trainer import Trainer
from spec.data.batches import Batch
from spec.environment import describe_environment
from spec.presets import run_spec
from spec.run import Execution

WINDOWS, WINDOW_S, WARMUP_CALLS, CALLS, BATCHES, TRACED = 10, 0.3, 10, 100, 16, 10


def main() -> None:
    """Measures the variants asked for; rank 0 writes."""
    parser = argparse.ArgumentParser()
    for name in ("out", "preset", "variants", "device"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--precision", default=None)
    options = parser.parse_args()
    execution = Execution(device=options.device, world_size=options.devices)
    problem = run_spec(
        options.preset, steps=10**5, devices=options.devices, precision=options.precision, execution=execution
    ).problem
    runtime.configure(problem, execution)
    ranks = parallel.join(execution)
    conditions = describe_environment() | runtime.environment()
    for variant in options.variants.split(","):
        form, flags = split(variant)
        row = {"variant": variant, "preset": options.preset, "devices": options.devices}
        trainer = Trainer(problem, execution, "jit", ranks=ranks)
        batches = [trainer.feed.rows(number) for number in range(BATCHES)]
        row |= measure(FORMS[form](trainer), batches, flags == "trace")
        if ranks.rank == 0:
            with open(options.out, "a") as file:
                file.write(json.dumps(row | {"conditions": conditions}) + "\n")
        del trainer
        gc.collect()
    ranks.close()


def rows_of_calls(form: Shipped, batches: list[Batch]) -> Iterator[list[Batch]]:
    """The rows of one call after another, without end."""
    number, length = 0, form.steps_per_call
    while True:
        yield [batches[(number + i) % len(batches)] for i in range(length)]
        number = (number + length) % len(batches)


def measure(form: Shipped, batches: list[Batch], traced: bool) -> dict[str, Any]:
    """Raw samples of one form, and what its program holds."""
    rows, ranks = rows_of_calls(form, batches), form.trainer.ranks
    started = time.perf_counter()
    form.launch(form.stage(next(rows)))
    ranks.fence(form.arrays())
    row: dict[str, Any] = {
        "steps_per_call": form.steps_per_call,
        "first_call_s": time.perf_counter() - started,
    }
    row["loss_1"] = form.loss()
    for _ in range(WARMUP_CALLS):
        form.launch(form.stage(next(rows)))
    row["loss_11"] = form.loss()
    row |= windows(form, rows)
    samples = [call_us(form, next(rows)) for _ in range(CALLS)]
    row |= dict(zip(("stage_us", "launch_us", "read_us"), zip(*samples, strict=True), strict=True))
    row["leaves"] = len(jax.tree.leaves(form.arrays()))
    if traced:
        row["trace"] = trace(form, rows)
    return row | {"program": instructions(form.program_text(next(rows)) or "")}


def windows(form: Shipped, rows: Iterator[list[Batch]]) -> dict[str, Any]:
    """Windows of back-to-back calls; the first, which is left out, tells how many calls fill one."""
    ranks, count = form.trainer.ranks, 10
    window_ms: list[float] = []
    busy_us: list[float] = []
    for _ in range(WINDOWS + 1):
        ranks.fence(form.arrays())
        started = time.perf_counter()
        for _ in range(count):
            staged = form.stage(next(rows))
            before = time.perf_counter()
            form.launch(staged)
            busy_us.append((time.perf_counter() - before) * 1e6)
            form.read()
        ranks.synchronize(form.arrays())
        window_ms.append((time.perf_counter() - started) * 1e3 / count / form.steps_per_call)
        if len(window_ms) == 1:
            own = max(3, int(WINDOW_S * 1e3 / window_ms[0] / form.steps_per_call))
            # The same on all ranks, or one would wait for the other's steps.
            count = int(ranks.broadcast(np.array(own, np.int32)))
            busy_us.clear()
    busy_us = busy_us[:: max(1, len(busy_us) // 200)]
    return {"window_ms": window_ms[1:], "busy_launch_us": busy_us, "calls_per_window": count}


def call_us(form: Shipped, rows: list[Batch]) -> list[float]:
    """Host time of staging, launching, and reading the metrics of the call before, on an idle device."""
    form.trainer.ranks.fence(form.arrays())
    times = [time.perf_counter()]
    staged = form.stage(rows)
    times.append(time.perf_counter())
    form.launch(staged)
    times.append(time.perf_counter())
    form.read()
    times.append(time.perf_counter())
    return [(after - before) * 1e6 for before, after in itertools.pairwise(times)]


def instructions(text: str) -> dict[str, int]:
    """How many instructions of each kind the optimized program has; custom calls by their target."""
    counts: collections.Counter[str] = collections.Counter()
    for line in text.splitlines():
        if found := re.match(r"\s+(?:ROOT )?%?[\w.-]+ = .*? ([a-z][\w-]*)\(", line):
            kind = found.group(1)
            target = re.search(r'custom_call_target="([^"]*)"', line)
            counts[f"{kind}:{target.group(1)}" if target else kind] += 1
    return dict(counts.most_common(40))


def trace(form: Shipped, rows: Iterator[list[Batch]]) -> dict[str, Any]:
    """Times a call of what host threads and the device did, from JAX's profiler: [name, count, us] a line."""
    profile = jax.profiler.ProfileOptions()
    profile.python_tracer_level, profile.host_tracer_level = 0, 3
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=profile):
            for _ in range(TRACED):
                form.launch(form.stage(next(rows)))
                form.read()
            form.trainer.ranks.synchronize(form.arrays())
        files = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        found = jax.profiler.ProfileData.from_file(files[0])
        return {f"{plane.name}/{line.name}": busiest(line) for plane in found.planes for line in plane.lines}


def busiest(line: Any) -> list[tuple[str, float, float]]:
    """The events of one line of a trace by name: (name, times a call, us a call), the longest first."""
    total: dict[str, list[float]] = {}
    for event in line.events:
        own = total.setdefault(event.name, [0, 0.0])
        own[0] += 1
        own[1] += event.duration_ns / 1e3
    rows = [(name[:120], count / TRACED, us / TRACED) for name, (count, us) in total.items()]
    return sorted(rows, key=lambda row: -row[2])[:40]


if __name__ == "__main__":
    main()
