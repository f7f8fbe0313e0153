"""Which way to execute one JAX step is faster: modes beside each other in one process, timed in turns.

    python -m benchmarks.jax_turns gpt2-124m --devices 2 jit:concurrent+buckets+collectives \\
        jit:concurrent+buckets+collectives@xla_gpu_enable_nccl_user_buffers=True 1:jit:concurrent+apart
    python -m benchmarks.jax_turns micro --precision strict \\
        jit:concurrent jit:concurrent@xla_gpu_deterministic_ops=False

A GPU at its power cap is a percent or two slower a minute later, which is more than what modes differ by, so
they take turns, in an order that is drawn anew each time. All are compiled first. Name a variant twice to see
what one program differs by from itself: 0.5 ms of 34 at gpt2-124m on two H200s. After `@` stand options of
XLA for this program alone, joined by commas; `1:` before a mode has it on the first device of several. One
process holds all devices; on CPUs, XLA_FLAGS has to make them. A line a variant is added to `--out`: windows
with their times, what was proven of the program, its options, the loss after ten steps. Before a window come
steps that are not timed, as a program's first launch after another's takes longer. Must not: decide; `parity
bench` does, with a process a GPU, as users run.
"""

import argparse
import json
import random
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import jax

from jax_impl import compile as compiling
from jax_impl import runtime
from jax_impl.trainer import Trainer
from jax_impl.xla.options import mode_options
from spec.data.batches import Batch
from spec.environment import describe_environment
from spec.errors import RuleError
from spec.presets import run_spec
from spec.run import Execution, Problem

BATCHES, FIRST_STEPS, UNTIMED_STEPS = 8, 10, 3


def main() -> None:
    """Compiles every variant, times them in turns, and writes a line each."""
    options = _options()
    several = Execution(
        device=options.device, world_size=options.devices, jax_one_process=options.devices > 1
    )
    runtime.configure(_problem(options, several), several)
    # A trainer of one device would have the process see no other, were they not here by now.
    jax.devices()
    variants = [Variant(name, options, several) for name in options.variants]
    draw = random.Random(0)
    for _ in range(options.windows):
        for variant in draw.sample(variants, len(variants)):
            variant.time(options.steps)
    conditions = describe_environment() | runtime.environment()
    with Path(options.out).open("a") as file:
        for variant in variants:
            file.write(json.dumps(variant.row | {"conditions": conditions}) + "\n")
            window_ms = variant.row["window_ms"]
            spread = f"({min(window_ms):.3f}-{max(window_ms):.3f}, n {len(window_ms)})"
            print(f"{variant.row['variant']}: {statistics.median(window_ms):.3f} ms {spread}")


class Variant:
    """One trainer, its rows, and what is written of it.

    Args:
      name: `[1:]MODE[@OPTION=VALUE,...]`.
      options: of the command line.
      several: how the variants without `1:` are run.

    Raises:
      RuleError: the mode makes several steps a launch.
    """

    def __init__(self, name: str, options: argparse.Namespace, several: Execution) -> None:
        alone = name.startswith("1:") and several.world_size > 1
        mode, _, told = name.removeprefix("1:").partition("@")
        more = dict(part.split("=", 1) for part in told.split(",")) if told else {}
        execution = replace(several, world_size=1, jax_one_process=False) if alone else several
        started = time.perf_counter()
        self.trainer = Trainer(_problem(options, execution), execution, mode)
        if self.trainer.steps_per_launch > 1:
            raise RuleError("A window has one step a launch.", mode, "leave kN out of the mode")
        self.rows: list[Batch] = [self.trainer.feed.rows(number) for number in range(BATCHES)]
        with mock.patch.object(compiling, "mode_options", lambda asked: mode_options(asked) | more):
            self.trainer.step(self.rows[0])
        for number in range(1, FIRST_STEPS):
            self.trainer.step(self.rows[number % BATCHES])
        loss = self.trainer.metrics().loss
        assert self.trainer.compiled is not None
        self.row: dict[str, Any] = {
            "variant": name,
            "preset": options.preset,
            "devices": execution.world_size,
            "first_steps_s": time.perf_counter() - started,
            f"loss_{FIRST_STEPS}": loss,
            "options": self.trainer.compiled.options,
            "proven": self.trainer.compiled.proven,
            "steps_per_window": options.steps,
            "window_ms": [],
            "window_began": [],
        }

    def time(self, steps: int) -> None:
        """One window: ms a step back to back, rows put one step ahead and metrics read one step late."""
        trainer, rows = self.trainer, self.rows
        for _ in range(UNTIMED_STEPS):
            trainer.step(rows[0])
        trainer.ranks.synchronize(trainer.state.train_state)  # type: ignore[union-attr]
        self.row["window_began"].append(time.monotonic())
        started = time.perf_counter()
        staged = trainer.stage(rows[0])
        for number in range(steps):
            trainer.launch(staged)
            staged = trainer.stage(rows[(number + 1) % BATCHES])
            trainer.metrics(trainer.num_steps - 2)
        trainer.ranks.synchronize(trainer.state.train_state)  # type: ignore[union-attr]
        self.row["window_ms"].append((time.perf_counter() - started) * 1e3 / steps)


def _problem(options: argparse.Namespace, execution: Execution) -> Problem:
    devices, precision = execution.world_size, options.precision
    spec = run_spec(options.preset, steps=10**5, devices=devices, precision=precision, execution=execution)
    return spec.problem


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("preset")
    parser.add_argument("variants", nargs="+", metavar="[1:]MODE[@OPTION=VALUE,...]")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--precision", default=None)
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--steps", type=int, default=10, help="of one window")
    parser.add_argument("--out", default="turns.jsonl", help="lines are added to it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
