"""What the host pays for a whole training step, by preset and mode: launch, dispatch, step, and the graph.

    python -m benchmarks.graph_step --out graph_step.jsonl
    torchrun --nproc-per-node 2 -m benchmarks.graph_step --out graph_step_2gpu.jsonl

Figures are defined in `spec/measure.py`; dispatch and launch are sampled in several conditions of the host,
since what the host did right before decides how warm its caches are. Raw samples are written, one line a
preset and mode, and medians are printed. `replay_us` is the same graph launched by torch's own `replay()`,
for comparison. No profiler may be attached: it slows every later launch of its process. NVLink multicast is
off; the record says so.
"""

import argparse
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
from torch_impl.graph.whole_step import WholeStep
from torch_impl.parallel import Ranks
from torch_impl.trainer import Trainer

WINDOWS, CALLS, BATCHES = 10, 400, 3
WINDOW_S = 0.4
"""About how long one window lasts."""


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
    samples = [sample(trainer, batches[i % BATCHES], *HOSTS[i % len(HOSTS)]) for i in range(CALLS)]
    row["samples"] = samples
    compiled = trainer.compiled
    assert compiled is not None
    row |= {"mode_ran": compiled.mode_ran, "reasons": compiled.reasons, "compile_s": compiled.compile_s}
    row |= {"capture": compiled.proven, "loss": trainer.metrics().loss}
    if compiled.whole is not None:
        row["replay_us"] = replay_us(compiled.whole, ranks)
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


def sample(trainer: Trainer, rows: Any, name: str, settle: Callable[[Trainer], None]) -> dict[str, Any]:
    """One step on an idle device, in one condition of the host: microseconds to stage it and to launch it.

    Also how often the host's thread was put to sleep, or gave way, while it waited for the device: what it
    runs next finds its caches cold.
    """
    before = resource.getrusage(resource.RUSAGE_THREAD)
    settle(trainer)
    after = resource.getrusage(resource.RUSAGE_THREAD)
    started = time.perf_counter_ns()
    staged = trainer.stage(rows)
    between = time.perf_counter_ns()
    trainer.launch(staged)
    ended = time.perf_counter_ns()
    return {
        "host": name,
        "dispatch_us": (ended - started) / 1e3,
        "launch_us": (ended - between) / 1e3,
        "slept": after.ru_nvcsw - before.ru_nvcsw,
        "gave_way": after.ru_nivcsw - before.ru_nivcsw,
    }


def after_synchronize(trainer: Trainer) -> None:
    """The host has just been waiting in the driver."""
    trainer.ranks.synchronize()


def after_metrics(trainer: Trainer) -> None:
    """The host has just read the step's metrics, as a training loop does; nothing is left on the device."""
    trainer.metrics()


def after_host_work(trainer: Trainer) -> None:
    """The device is idle, and the host has been at other work for 300 us since."""
    trainer.ranks.synchronize()
    until = time.perf_counter_ns() + 300_000
    while time.perf_counter_ns() < until:
        sum(range(100))


def after_barrier(trainer: Trainer) -> None:
    """All ranks have just met, through NCCL."""
    trainer.ranks.fence()


HOSTS = (
    ("synchronize", after_synchronize),
    ("metrics", after_metrics),
    ("host_work", after_host_work),
    ("barrier", after_barrier),
)


def replay_us(whole: WholeStep, ranks: Ranks) -> list[float]:
    """The same graph through torch; the last thing that is done with it."""
    graph = whole.shapes[0].captured
    assert graph is not None
    graph.instantiate()
    graph.replay()
    samples = []
    for _ in range(CALLS // len(HOSTS)):
        ranks.synchronize()
        samples.append(timed_us(graph.replay))
    ranks.fence()
    return samples


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
        parts.append(f"  replay_us {_spread(row['replay_us'])}")
    for host, _ in HOSTS:
        chosen = [s for s in row["samples"] if s["host"] == host]
        dispatch, launch = (_spread([s[key] for s in chosen]) for key in ("dispatch_us", "launch_us"))
        slept = sum(s["slept"] + s["gave_way"] for s in chosen) / len(chosen)
        parts.append(
            f"  after {host:>11}: dispatch_us {dispatch}, launch_us {launch}, slept {slept:.1f} times"
        )
    return "\n".join([*parts, f"  compile_s {row['compile_s']} {row['reasons'].get('capture', '')}"])


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
