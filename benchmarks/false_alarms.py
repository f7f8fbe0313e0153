"""How often a measured run of a clean pair is not SAME: the false alarms of the decision rule, counted.

    python benchmarks/false_alarms.py toy-mlp --precision strict --first-seed 1000 --seeds 100 --to raw.jsonl
    python benchmarks/false_alarms.py --count benchmarks/results/false_alarms/*.jsonl

Every seed is what `parity run TARGET --seed N --judge measured --no-time` does: the same jobs, the same
judge, a run folder of its own. Only the launches are shared, by `--together` seeds at a time. A seed that
stands in the file is not run again. Run folders of seeds that were SAME are taken away; those of false
alarms stay.
Must not: judge by another rule than the command's.
"""

import argparse
import json
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parity import measuring, turns
from parity.assemble import failure_message, run_passes
from parity.beginning import begin
from parity.equivalence.beta import proportion_bounds
from parity.judge.align import Measured
from parity.judge.verdict import judge
from parity.options import Run
from parity.plan import Plan, make_plan
from parity.progress import Progress
from parity.report.result import Numerics
from parity.session import Held, hold
from parity.turns import Turn

TOGETHER = 10
_TIMEOUT_S = 7200.0
"""The runs may stand back behind whatever else the machine does."""


@dataclass(frozen=True, kw_only=True)
class Seed:
    """One run: its seed, its plan and its folder."""

    number: int
    plan: Plan
    folder: Path


def main() -> None:
    """Runs the seeds that are missing, or counts what files hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("target", nargs="?", help="a preset, or the folder of a pair")
    parser.add_argument("--precision", default="strict")
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--together", type=int, default=TOGETHER)
    parser.add_argument("--to", type=Path, help="one JSON line a seed is added to it")
    parser.add_argument("--runs", default="runs/false_alarms")
    parser.add_argument("--count", nargs="+", type=Path, default=[])
    asked = parser.parse_args()
    if asked.count:
        count(asked.count)
        return
    done = {line["seed"] for line in read(asked.to) if _same_conditions(line, asked)}
    missing = [seed for seed in range(asked.first_seed, asked.first_seed + asked.seeds) if seed not in done]
    for start in range(0, len(missing), asked.together):
        lines = run(missing[start : start + asked.together], asked)
        with asked.to.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    count([asked.to])


def run(numbers: Sequence[int], asked: argparse.Namespace) -> list[dict[str, object]]:
    """Runs and judges some seeds, in five launches; what is told of each."""
    began, progress = time.monotonic(), Progress()
    seeds = [_begin(number, asked, progress) for number in numbers]
    plan, logs = seeds[0].plan, seeds[0].folder
    plain = _hold(plan, [turns.judged(seed.plan, seed.folder, None) for seed in seeds], logs, progress)
    passes = [_of_folder(plain, seed.folder) for seed in seeds]
    wanted = "f64_casts" if plan.pair else "f64"
    measured = [
        measuring.plan_measuring(
            seed.plan,
            seed.folder,
            len(sides),
            measuring.probe_steps(seed.plan.spec, sides["torch"].curve),
            wanted,
        )
        for seed, sides in zip(seeds, passes, strict=True)
    ]
    _hold(plan, [item.turns for item in measured], logs, progress, len(plain))
    lines = []
    for seed, sides, item in zip(seeds, passes, measured, strict=True):
        found = judge(sides["torch"], sides["jax"], passes=item.passes)
        by_table = judge(sides["torch"], sides["jax"]).verdict
        lines.append(_line(seed, asked, found, by_table))
        if found.verdict == "SAME":
            shutil.rmtree(seed.folder)
    seconds = (time.monotonic() - began) / len(seeds)
    return [line | {"seconds": round(seconds, 2)} for line in lines]


def _begin(number: int, asked: argparse.Namespace, progress: Progress) -> Seed:
    options = Run(
        preset=asked.target,
        precision=asked.precision,
        steps=asked.steps,
        seed=number,
        devices=1,
        judge="measured",
        time=False,
        device="cpu",
        out=asked.runs,
        timeout_s=_TIMEOUT_S,
    )
    folder, settled = begin(make_plan(options), options, [Path(__file__).name], progress)
    return Seed(number=number, plan=settled.plan, folder=folder)


def _hold(
    plan: Plan, all_turns: list[list[Turn]], logs: Path, progress: Progress, done: int = 0
) -> list[Held]:
    """The turns of all seeds, first with first, second with second: one launch each."""
    merged = [
        Turn(side=group[0].side, jobs=tuple(job for turn in group for job in turn.jobs))
        for group in zip(*all_turns, strict=True)
    ]
    held = hold(plan, merged, logs, progress, done=done)
    if held[-1].ended.how != "done":
        raise SystemExit(failure_message(held[-1]))
    return held


def _of_folder(held: Sequence[Held], folder: Path) -> dict[str, Measured]:
    """The run passes of one seed."""
    own = [
        Held(
            turn=Turn(
                side=item.turn.side,
                jobs=tuple(job for job in item.turn.jobs if folder in Path(job.out).parents),
            ),
            ended=item.ended,
            log=item.log,
        )
        for item in held
    ]
    return run_passes(own)


def _line(seed: Seed, asked: argparse.Namespace, found: Numerics, by_table: str) -> dict[str, object]:
    first, lockstep = found.first_divergence, found.lockstep
    assert lockstep is not None and found.loss is not None
    floors = [
        value
        for row in lockstep.rows
        if row.numbers is not None
        for value in row.numbers.error_in_floors.values()
        if value is not None
    ]
    return {
        "target": asked.target,
        "precision": asked.precision,
        "steps": found.steps,
        "seed": seed.number,
        "verdict": found.verdict,
        "by_table": by_table,
        "first": first.message if first else None,
        "found": lockstep.found,
        "truths": lockstep.truths,
        "largest_in_floors": round(max(floors, default=0.0), 2),
        "loss_max_rel": found.loss.max_rel,
        "problem_sha256": seed.plan.spec.problem.sha256()[:12],
    }


def _same_conditions(line: dict[str, object], asked: argparse.Namespace) -> bool:
    names = ("target", "precision") if asked.steps is None else ("target", "precision", "steps")
    return all(line[name] == getattr(asked, name) for name in names)


def read(path: Path) -> list[dict[str, object]]:
    """The lines of a file; none where it is not there yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def count(paths: Sequence[Path]) -> None:
    """Prints, for every target and precision, the rate of false alarms and its exact 95 % interval."""
    groups: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for line in (line for path in paths for line in read(path)):
        groups.setdefault((line["target"], line["precision"], line["steps"]), []).append(line)
    for (target, precision, steps), lines in groups.items():
        for judged_by in ("verdict", "by_table"):
            verdicts = Counter(str(line[judged_by]) for line in lines)
            alarms = len(lines) - verdicts["SAME"]
            low, high = proportion_bounds(alarms, len(lines))
            print(
                f"{target} {precision} {steps} steps, {'measured' if judged_by == 'verdict' else 'table'}: "
                f"{alarms} of {len(lines)} seeds not SAME {dict(verdicts)}; "
                f"rate {alarms / len(lines):.3f}, 95 % {low:.4f} to {high:.4f}"
            )


if __name__ == "__main__":
    main()
