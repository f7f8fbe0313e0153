"""What does measuring through the referee cost? The same step loop plainly, and through `parity bench`.

    python benchmarks/harness_cost.py toy-mlp --out harness.jsonl
    python benchmarks/harness_cost.py micro --device cuda --out harness.jsonl

A plain process makes a trainer and times windows of the loop that a `time` job runs: no referee beside it, no
job file, no record, no log. It has the variables that the referee gives a side. Per side the order is plain,
bench, bench, plain, and so on; each is a process of its own, since two launches of one program differ too.
A line a process goes to `--out`, the difference with its interval to standard output; the aim is under 1 %.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parity.commands import python_path, side_environ
from parity.speed.figures import TimePass
from parity.speed.statistics import ratio, spread
from spec.data.batches import open_source
from spec.environment import describe_environment
from spec.job import PREPARED_BATCHES
from spec.presets import run_spec
from spec.run import AUTO_MODES, Execution

TARGET = 0.01
NOISY = 0.1
"""Where processes that do the same differ by more, the machine is no place to look for a hundredth."""


def main() -> None:
    """Measures both ways in alternation, or plainly in this process."""
    options = _options()
    if options.plain:
        print(json.dumps(_plain(options)))
        return
    samples: dict[tuple[str, str], list[list[float]]] = {}
    conditions = describe_environment()
    with Path(options.out).open("w") as file:
        for turn in range(options.rounds):
            for side in options.backend.split(","):
                order = (
                    ("plain", "bench", "bench", "plain")
                    if turn % 2 == 0
                    else ("bench", "plain", "plain", "bench")
                )
                for way in order:
                    found = _in_process(options, side) if way == "plain" else _through_bench(options, side)
                    samples.setdefault((side, way), []).append(found)
                    row = {"side": side, "way": way, "load": os.getloadavg()[0], "step_ms": found}
                    file.write(json.dumps(row | {"preset": options.preset, "conditions": conditions}) + "\n")
                    file.flush()
    for side in options.backend.split(","):
        print(_line(side, samples[side, "bench"], samples[side, "plain"]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The cost of measuring through the referee.")
    parser.add_argument("preset")
    parser.add_argument("--backend", default="torch,jax")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--steps-per-window", type=int, default=20)
    parser.add_argument("--warmup-steps", type=int, default=20)
    parser.add_argument("--out", default="harness.jsonl")
    parser.add_argument("--plain", default=None, help="torch or jax: time it plainly in this process")
    return parser.parse_args()


def _line(side: str, bench: list[list[float]], plain: list[list[float]]) -> str:
    """The difference of the medians with its interval, and whether it meets the target."""
    found = ratio(bench, plain)
    medians = [spread([sample for one in passes for sample in one]) for passes in (bench, plain)]
    assert found is not None and medians[0] is not None and medians[1] is not None
    low, high = (100 * (bound - 1) for bound in found.ci95)
    inside = max(abs(low), abs(high)) <= 100 * TARGET
    outside = low > 100 * TARGET or high < -100 * TARGET
    apart = max(_apart(bench), _apart(plain))
    word = "met" if inside else "missed" if outside and apart <= NOISY else "not settled on this machine"
    return (
        f"{side}: bench {medians[0].median:.4g} ms, plain {medians[1].median:.4g} ms "
        f"(n {medians[0].n} and {medians[1].n} windows), difference {100 * (found.median - 1):+.2f} % "
        f"(95 % {low:+.2f} to {high:+.2f}), processes of one way {100 * apart:.0f} % apart; "
        f"target {100 * TARGET:g} %: {word}"
    )


def _apart(passes: list[list[float]]) -> float:
    """How far the medians of processes that do the same are apart, relative to the smallest."""
    medians = [found.median for one in passes if (found := spread(one)) is not None]
    return max(medians) / min(medians) - 1


def _in_process(options: argparse.Namespace, side: str) -> list[float]:
    """Step times of a plain process."""
    words = [option for option in sys.argv[1:] if option]
    argv = [sys.executable, str(Path(__file__).resolve()), *words, "--plain", side]
    environ = os.environ | side_environ(options.device, 1)
    # A session of its own, as the referee gives a side: a busy Linux shares its cores among sessions.
    return json.loads(_output(argv, environ, start_new_session=True).splitlines()[-1])


def _through_bench(options: argparse.Namespace, side: str) -> list[float]:
    """Step times of the first pass of a benchmark of that side alone."""
    with tempfile.TemporaryDirectory() as out:
        words = [
            "--backend",
            side,
            "--device",
            options.device,
            "--devices",
            "1",
            "--steps",
            "50",
            "--out",
            out,
        ]
        for name in ("windows", "steps_per_window", "warmup_steps"):
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
        argv = [sys.executable, "-m", "parity", "bench", options.preset, *words]
        _output(argv, os.environ | {"PYTHONPATH": python_path()})
        return TimePass(min(Path(out).glob("*/passes/001_*"))).step_ms


def _output(argv: list[str], environ: dict[str, str], **options: Any) -> str:
    """What a process that ends well printed."""
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _plain(options: argparse.Namespace) -> list[float]:
    """Windows of the loop that a `time` job runs, in a process that does nothing else."""
    execution = Execution(
        device=options.device, **{f"{options.plain}_mode": AUTO_MODES[options.device][options.plain]}
    )
    problem = run_spec(options.preset, steps=50, devices=1, execution=execution).problem
    trainer, feed, window_ms = _side(options.plain, problem, execution)
    for _ in range(max(2, options.warmup_steps)):
        trainer.step(feed.rows(trainer.num_steps))
    step_ms = [window_ms(options.steps_per_window) for _ in range(options.windows)]
    trainer.close()
    return step_ms


def _side(side: str, problem: Any, execution: Execution) -> tuple[Any, Any, Callable[[int], float]]:
    """A trainer, its prepared rows, and what times a window of so many steps, in ms a step."""
    source = open_source(problem, None)
    if side == "torch":
        from torch_impl import feed, trainer, work

        own = trainer.Trainer(problem, execution, execution.torch_mode)
        rows = feed.Feed(source, problem, own.ranks, cycle=PREPARED_BATCHES)
        return own, rows, lambda steps: 1e3 * work._window_s(own, rows, steps) / steps
    from jax_impl import feed as jax_feed
    from jax_impl import trainer as jax_trainer
    from jax_impl import work as jax_work

    jax_own = jax_trainer.Trainer(problem, execution, execution.jax_mode)
    jax_rows = jax_feed.Feed(source, problem, jax_own.ranks, cycle=PREPARED_BATCHES)
    return jax_own, jax_rows, lambda steps: 1e3 * jax_work._window(jax_own, jax_rows, steps)["wall_s"] / steps


if __name__ == "__main__":
    main()
