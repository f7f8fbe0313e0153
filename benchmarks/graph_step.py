"""What the host pays for a whole training step, by preset and mode: launch, dispatch, step, and the graph.

    python -m benchmarks.graph_step --out graph_step.jsonl
    torchrun --nproc-per-node 2 -m benchmarks.graph_step --out graph_step_2gpu.jsonl

Figures are defined in `spec/measure.py`; dispatch and launch are sampled in several conditions of the host,
since what the host did right before decides how warm its caches are, with the thread free and bound to one
core. Beside each stands what a graph of ONE kernel costs there: the floor under any launch. Raw samples are
written, one line a preset and mode, and medians are printed. `launches_us` is the same graph launched in turn
by torch's own `replay()` and in each way to instantiate it. No profiler may be attached: it slows every later
launch of its process. NVLink multicast is off; the record says so.
"""

import argparse
import contextlib
import ctypes
import gc
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from spec import record
from spec.environment import describe_environment
from spec.presets import run_spec
from spec.run import Execution
from torch_impl import parallel, runtime
from torch_impl.graph.driver import DriverError
from torch_impl.graph.launch import FLAGS, Executable, instantiate
from torch_impl.graph.whole_step import WholeStep
from torch_impl.parallel import Ranks
from torch_impl.trainer import Trainer

WINDOWS, CALLS, BATCHES = 10, 300, 3
WINDOW_S = 0.4
"""About how long one window lasts."""
SCHED_GETCPU = ctypes.CDLL(None).sched_getcpu
KEPT: list[Any] = []
"""What a graph still reads."""


def measure(name: str, mode: str, ranks: Ranks) -> dict[str, Any]:
    """Raw samples of one preset in one mode."""
    execution = Execution(device="cuda", world_size=ranks.world_size)
    problem = run_spec(name, steps=10**5, devices=ranks.world_size, execution=execution).problem
    trainer = Trainer(problem, execution, mode, ranks=ranks)
    batches = [trainer.feed.rows(number) for number in range(BATCHES)]
    started = time.perf_counter()
    trainer.step(batches[0])
    ranks.fence()
    first_step_s = time.perf_counter() - started
    for number in range(20):
        trainer.step(batches[number % BATCHES])
    row: dict[str, Any] = {"preset": name, "mode": mode, "first_step_s": first_step_s}
    row["step_ms"] = window_ms(trainer, batches)
    row["samples"] = [s for bound in (False, True) for s in samples(trainer, batches, bound)]
    compiled = trainer.compiled
    assert compiled is not None
    row |= {"mode_ran": compiled.mode_ran, "reasons": compiled.reasons, "compile_s": compiled.compile_s}
    row |= {"capture": compiled.proven, "loss": trainer.metrics().loss}
    if compiled.whole is not None:
        row["launches_us"] = launches_us(compiled.whole, ranks)
        compiled.whole.close()
    row["peak_mem_bytes"] = torch.cuda.max_memory_allocated()
    return row


def window_ms(trainer: Trainer, batches: list[Any]) -> list[float]:
    """Milliseconds a step over windows of back-to-back steps, metrics read one step late."""
    count, samples = 20, []
    for window in range(WINDOWS + 1):
        trainer.ranks.fence()
        started = time.perf_counter()
        for number in range(count):
            trainer.step(batches[number % BATCHES])
            trainer.metrics(trainer.num_steps - 2)
        trainer.ranks.synchronize()
        samples.append((time.perf_counter() - started) * 1e3 / count)
        if window == 0:
            # The same on all ranks, or one would wait for the other's steps.
            length = torch.tensor([max(5, int(WINDOW_S * 1e3 / samples[0]))], device=trainer.ranks.device)
            trainer.ranks.broadcast(length)
            count = int(length)
    return samples[1:]


def samples(trainer: Trainer, batches: list[Any], bound: bool) -> list[dict[str, Any]]:
    """Single steps on an idle device in every condition of the host, the thread bound to its core or free."""
    floor, allowed = one_kernel(trainer.ranks.device), os.sched_getaffinity(0)
    if bound:
        os.sched_setaffinity(0, {SCHED_GETCPU()})
    try:
        return [
            sample(
                trainer,
                batches[i % BATCHES],
                floor if i // len(HOSTS) % 3 == 2 else None,
                *HOSTS[i % len(HOSTS)],
            )
            | {"bound": bound}
            for i in range(CALLS)
        ]
    finally:
        os.sched_setaffinity(0, allowed)
        floor.destroy()


def sample(
    trainer: Trainer, rows: Any, floor: Executable | None, host: str, settle: Callable[[Trainer, Any], None]
) -> dict[str, Any]:
    """One step in one condition of the host: microseconds to stage it and to launch it; or those of `floor`.

    Also how often the host's thread was put to sleep, or gave way, or moved to another core while it waited
    for the device, and page faults inside the step: what follows finds its caches cold.
    """
    before, core = resource.getrusage(resource.RUSAGE_THREAD), SCHED_GETCPU()
    settle(trainer, rows)
    after, moved = resource.getrusage(resource.RUSAGE_THREAD), core != SCHED_GETCPU()
    row: dict[str, Any] = {"host": host, "moved": moved}
    row |= {"slept": after.ru_nvcsw - before.ru_nvcsw, "gave_way": after.ru_nivcsw - before.ru_nivcsw}
    if floor is not None:
        floor_us = timed_us(floor.launch)
        trainer.step(rows)  # So that the next sample, too, waits for a step.
        return row | {"floor_us": floor_us}
    started = time.perf_counter_ns()
    staged = trainer.stage(rows)
    between = time.perf_counter_ns()
    trainer.launch(staged)
    ended = time.perf_counter_ns()
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - after.ru_minflt
    times = {"stage_us": (between - started) / 1e3, "launch_us": (ended - between) / 1e3}
    return row | times | {"dispatch_us": (ended - started) / 1e3, "faults": faults}


def one_kernel(device: torch.device) -> Executable:
    """A graph of one kernel on the current stream."""
    stream, graph, value = torch.cuda.Stream(device), torch.cuda.CUDAGraph(keep_graph=True), None
    with torch.cuda.graph(graph, stream=stream):
        value = torch.zeros((), device=device)
    KEPT.append((graph, value, stream))
    return instantiate(graph, torch.cuda.current_stream(device))


def after_synchronize(trainer: Trainer, rows: Any) -> None:
    """The host has just been waiting in the driver."""
    trainer.ranks.synchronize()


def after_metrics(trainer: Trainer, rows: Any) -> None:
    """The host has just read the step's metrics, as a training loop does; nothing is left on the device."""
    trainer.metrics()


def after_host_work(trainer: Trainer, rows: Any) -> None:
    """The device is idle, and the host has been at other work for 300 us since."""
    trainer.ranks.synchronize()
    until = time.perf_counter_ns() + 300_000
    while time.perf_counter_ns() < until:
        sum(range(100))


def after_barrier(trainer: Trainer, rows: Any) -> None:
    """All ranks have just met, through NCCL."""
    trainer.ranks.fence()


def after_staging(trainer: Trainer, rows: Any) -> None:
    """The device is idle, and the batch was staged once already: its memory is in the caches."""
    trainer.ranks.synchronize()
    trainer.stage(rows)


HOSTS = (
    ("synchronize", after_synchronize),
    ("metrics", after_metrics),
    ("host_work", after_host_work),
    ("barrier", after_barrier),
    ("staging", after_staging),
)


def launches_us(whole: WholeStep, ranks: Ranks) -> dict[str, list[float]]:
    """The same graph, launched in turn by torch and in each way to instantiate it; the last use of it.

    A way that is refused is left out.
    """
    graph = whole.shapes[0].captured
    assert graph is not None
    graph.instantiate()
    launchers: dict[str, Callable[[], object]] = {"torch replay": graph.replay}
    # Executables hold on to the communicator, whose end would wait for theirs.
    with contextlib.ExitStack() as ends:
        for way in FLAGS:
            with contextlib.suppress(DriverError):
                executable = instantiate(graph, torch.cuda.current_stream(), ways=(way,))
                ends.callback(executable.destroy)
                launchers[way] = executable.launch
        found: dict[str, list[float]] = {way: [] for way in launchers}
        for _ in range(CALLS // len(HOSTS)):
            for way, launch in launchers.items():
                ranks.synchronize()
                found[way].append(timed_us(launch))
        ranks.fence()
    return found


def timed_us(function: Callable[[], object]) -> float:
    """Host microseconds of one call."""
    started = time.perf_counter_ns()
    function()
    return (time.perf_counter_ns() - started) / 1e3


def summary(row: dict[str, Any]) -> str:
    """A few lines: medians, nodes, plan."""
    parts = [f"{row['preset']} {row['mode_ran']}: step_ms {statistics.median(row['step_ms']):.3f}"]
    if row["capture"]:
        graph = row["capture"]["graphs"][0]
        parts.append(f"  {graph['nodes_by_kind']} from {graph['rewritten']} left {graph['not_kernels']}")
        parts.append(f"  plan {row['capture']['plan']} capture_s {row['capture']['capture_s']:.2f}")
        parts += [f"  launched by {way}: {_spread(found)} us" for way, found in row["launches_us"].items()]
    for bound in (False, True):
        for host, _ in HOSTS:
            parts.append(_line([s for s in row["samples"] if (s["host"], s["bound"]) == (host, bound)]))
    return "\n".join([*parts, f"  compile_s {row['compile_s']} {row['reasons'].get('capture', '')}"])


def _line(chosen: list[dict[str, Any]]) -> str:
    """One condition of the host."""
    mean = {key: sum(s[key] for s in chosen) / len(chosen) for key in ("slept", "gave_way", "moved")}
    times = {
        key: _spread([s[key] for s in chosen if key in s])
        for key in ("dispatch_us", "stage_us", "launch_us", "floor_us")
    }
    where = f"{'bound' if chosen[0]['bound'] else 'free'} after {chosen[0]['host']}"
    words = [f"{key} {value}" for key, value in times.items()] + [f"{k} {v:.2f}" for k, v in mean.items()]
    return f"  {where:>23}: {', '.join(words)}"


def _spread(samples: list[float]) -> str:
    deciles = statistics.quantiles(samples, n=10)
    return f"{statistics.median(samples):.1f} ({deciles[0]:.1f}-{deciles[-1]:.1f})"


def main() -> None:
    """Measures every preset in every mode; rank 0 writes and prints."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--presets", default="micro,mini,gpt2-124m")
    parser.add_argument("--modes", default="graph,graph+inductor")
    arguments = parser.parse_args()
    ranks = parallel.join(Execution(device="cuda", world_size=int(os.environ.get("WORLD_SIZE", "1"))))
    try:
        with record.Lines(arguments.out if ranks.rank == 0 else Path(os.devnull)) as lines:
            lines.write({"conditions": describe_environment() | runtime.environment()})
            for name in arguments.presets.split(","):
                for mode in arguments.modes.split(","):
                    row = measure(name, mode, ranks) | {"world_size": ranks.world_size}
                    lines.write(row)
                    if ranks.rank == 0:
                        print(summary(row), flush=True)
                    gc.collect()
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                    torch._dynamo.reset()
    finally:
        ranks.close()


if __name__ == "__main__":
    main()
