"""Where the sides of a run begin: at their initial weights, or at checkpoints of a run before.

Must not: read a tensor; the sides do, and verify every one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from parity import folders
from spec.checkpoint import checkpoints_in, find_checkpoint, open_checkpoint
from spec.checkpoint.find import FOLDER
from spec.errors import RuleError
from spec.run import Problem


@dataclass(frozen=True, kw_only=True)
class Start:
    """The first step, and what the sides take it from."""

    step: int = 0
    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    """By side; empty where training starts from the initial weights."""

    @property
    def from_equal_bits(self) -> bool:
        """Whether all sides begin with the same state, so that their first gradients can be compared."""
        return len(set(self.checkpoints.values())) <= 1


def find_start(where: str | None, out: Path, backends: tuple[str, ...], problem: Problem) -> Start:
    """What `--resume` means for the sides that run.

    Args:
      where: a checkpoint folder, a run folder, its number, `last`, or None.
      out: the folder of run folders.

    Raises:
      RuleError: there is no such checkpoint, it is damaged or another problem's, or no step is left.
    """
    if where is None:
        return Start()
    chosen = _chosen(where, out, backends)
    step = 0
    for path in chosen.values():
        checkpoint = open_checkpoint(path)
        checkpoint.check_fits(problem)
        checkpoint.check_steps_left(problem.steps)
        step = checkpoint.position.step
    return Start(step=step, checkpoints=chosen)


def _chosen(where: str, out: Path, backends: tuple[str, ...]) -> dict[str, Path]:
    """The checkpoint of each side."""
    folder = folders.find(where, out, folders.PASSES)
    if not (folder / "passes").is_dir():
        # One checkpoint, or a run made by hand: nothing in it belongs to one of two sides.
        return dict.fromkeys(backends, find_checkpoint(folder))
    own = {side: _of_side(folder, side) for side in backends}
    shared = set.intersection(*(set(steps) for steps in own.values()))
    if not shared:
        found = "; ".join(f"{side} after {', '.join(map(str, own[side])) or 'none'}" for side in own)
        newest = max((item for steps in own.values() for item in steps.items()), default=None)
        raise RuleError(
            "A run goes on at a step that every side has a checkpoint of.",
            f"{folder}: {found}",
            "name a run that was given --save-every"
            if newest is None
            else f"let every side go on from one checkpoint, such as --resume {newest[1]}",
        )
    return {side: steps[max(shared)] for side, steps in own.items()}


def _of_side(folder: Path, side: str) -> dict[int, Path]:
    """The checkpoints of a side's run pass, by the steps that they come after."""
    found: dict[int, Path] = {}
    for pass_folder in sorted(folder.glob(f"passes/*_{side}_run")):
        found |= checkpoints_in(pass_folder / FOLDER)
    return found
