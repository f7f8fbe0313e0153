"""What is stated before the first seed runs: the margin, the seeds, and how they will be judged.

A margin or a number of seeds chosen after a look at the losses would prove nothing, so both stand in
`run.json` from the start, and whoever goes on with a stopped test must state the same. Must not: train.
"""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from parity import folders
from parity.equivalence.rule import ALPHA, WINDOW
from parity.judge import gate
from parity.speed.machine import Environment, difference
from spec import codec
from spec.errors import RuleError, few
from spec.pairs.materialise import Outline
from spec.run import Problem

FEWEST_SEEDS = 10
_PERCENT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:e([-+]?\d+))?%")
_KEY = "equivalence"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The test, before its data."""

    margin: float
    """Relative: 0.01 for 1%."""
    seeds: tuple[int, ...]
    problem: Problem
    """Of the first seed; of a pair, as `pair.py` describes it."""
    execution: str
    """Device, processes and modes."""
    edits: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    """Of a pair: its Python files, by their place from its folder, and what is in them, hashed."""
    quantity: str = "loss"
    window: float = WINDOW
    alpha: float = ALPHA

    def told(self) -> dict[str, object]:
        """For `run.json`."""
        return {_KEY: codec.to_dict(self)}


def hash_files(outline: Outline | None) -> dict[str, str]:
    """The Python files in a pair's folder, and those of its sides; of a preset none."""
    if outline is None:
        return {}
    folder = Path(outline.folder)
    names = {file.name for file in folder.glob("*.py")} | {outline.pair.torch, outline.pair.jax}
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest()[:12] for name in sorted(names)}


def parse_margin(text: str) -> float:
    """The margin of `1%`.

    Raises:
      RuleError: it is no percentage between 0 and 100.
    """
    margin = float(text[:-1]) / 100 if _PERCENT.fullmatch(text) else 0.0
    if not 0 < margin < 1:
        raise RuleError(
            "A margin is a percentage of the loss, above 0 and below 100.", f"--margin {text}", "such as 1%"
        )
    return margin


def check_seeds(count: int) -> None:
    """Refuses fewer seeds than a test needs.

    Raises:
      RuleError: there are fewer.
    """
    if count < FEWEST_SEEDS:
        raise RuleError(
            f"An equivalence test has at least {FEWEST_SEEDS} seeds.",
            f"--seeds {count}",
            f"--seeds {FEWEST_SEEDS} or more",
        )


def read_statement(folder: Path) -> Statement:
    """What was stated in a run folder.

    Raises:
      RuleError: it is no folder of an equivalence test.
    """
    content = folders.read_run(folder)
    if _KEY not in content:
        raise RuleError(
            "An equivalence test goes on with one that was stopped.",
            f"{folder} is none",
            "leave --resume out",
        )
    return codec.from_dict(Statement, content[_KEY])


def refuse_another(stated: Statement, now: Statement, folder: Path) -> None:
    """Refuses to go on with another test than the one that was stated.

    Raises:
      RuleError: something differs; both values are named.
    """
    before, after = (gate.flat(codec.to_dict(item)) for item in (stated, now))
    for name in before | after:
        if before.get(name) != after.get(name):
            raise RuleError(
                "A test goes on as it was stated before its first run.",
                f"{name}: {before.get(name)} in {folder}, now {after.get(name)}",
                "type the options as they were, or begin a new test without --resume",
            )


def refuse_other_machine(before: Environment, now: Environment, device: str, folder: Path) -> None:
    """Refuses to go on on another device or with other versions: a seed would differ by these too.

    Raises:
      RuleError: something differs; both values are named.
    """
    if found := difference(before, now, device).of_kind:
        raise RuleError(
            "All seeds of a test are trained on one device by one version.",
            f"{folder}: {few(found)}",
            "go on where it began, or begin a new test without --resume",
        )
