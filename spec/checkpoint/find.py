"""Where checkpoints lie: `stepNNNNNN/` in a folder `checkpoints` of a pass, and which one is meant.

Must not: open a checkpoint.
"""

import re
from pathlib import Path

from spec.checkpoint.format import MANIFEST
from spec.errors import RuleError

FOLDER = "checkpoints"
"""Name of the folder of checkpoints inside a pass folder (or a run made by hand)."""

_STEP = re.compile(r"step(\d{6,})")


def step_folder(step: int) -> str:
    """Name of the folder of the checkpoint after `step` steps; names sort as steps do, up to a million."""
    return f"step{step:06d}"


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """The whole checkpoints directly in a folder by step, in order; half-written ones have other names."""
    found = {int(m.group(1)): path for path in folder.glob("step*") if (m := _STEP.fullmatch(path.name))}
    return dict(sorted(found.items()))


def find_checkpoint(where: Path | str, side: str | None = None) -> Path:
    """The checkpoint that a path means: itself, or the one of most steps of a run.

    Args:
      where: a checkpoint, or a folder `checkpoints`, a pass folder or a run folder that has some.
      side: in a run of both sides, `torch` or `jax` takes that side's own if it has any.

    Raises:
      RuleError: there is none.
    """
    where = Path(where).absolute()
    if (where / MANIFEST).exists():
        return where
    for name in (f"*_{side}_*", "*"):
        folders = [where, where / FOLDER, *sorted(where.glob(f"passes/{name}/{FOLDER}"))]
        found = [item for folder in folders for item in checkpoints_in(folder).items()]
        if found:
            return max(found)[1]
    raise RuleError(
        "A run goes on from a checkpoint.",
        f"{where}: {'none in it' if where.is_dir() else 'a file' if where.exists() else 'no such folder'}",
        "name a checkpoint folder, or a run that was given --save-every",
    )
