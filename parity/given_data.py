"""What `--data` means, and whether rows can be made of it: known before a folder is made or a side started.

Must not: read more than a side's first rows need.
"""

import contextlib
import dataclasses
import glob
from collections.abc import Generator
from pathlib import Path

from parity.options import Training
from spec.data.batches import FolderSource, RowSource, open_source
from spec.errors import RuleError
from spec.job import PREPARED_BATCHES
from spec.presets import preset
from spec.run import DataSpec, Problem

_MEND = "name a text, token shards (*.bin) or a folder of batches; the path is from where you are"
_MEND_TIMED = f"timing repeats the first {PREPARED_BATCHES} batches: write them, or run with --no-time"


def given(options: Training) -> DataSpec | None:
    """The data of `--data`, its path absolute, of the kind that lies there; None where none were named.

    Raises:
      RuleError: nothing lies there, or nothing that is trained on.
    """
    if options.data is None:
        return None
    own = preset(options.preset, options.steps).problem.data
    with _readable(options.data):
        path = Path(options.data).expanduser().absolute()
        kind = _kind(path, options.data)
    return dataclasses.replace(own, kind=kind, path=str(path))


def _kind(path: Path, typed: str) -> str:
    if path.is_dir():
        if any(path.glob("*.bin")):
            return "shards"
        if any(path.glob("step*.safetensors")):
            return "folder"
        raise RuleError(
            "A folder of data holds token shards or batches.",
            f"--data {typed}: neither *.bin nor stepNNNNNN.safetensors in this folder",
            "name another, or make a shard in it: parity data prepare TEXT --out SHARD.bin",
        )
    if path.exists():
        return "shards" if path.suffix == ".bin" else "text"
    if glob.has_magic(typed):
        return "shards"
    raise RuleError("The data exist.", f"--data {typed}: no such file or folder", _MEND)


def check(problem: Problem, *, steps: int, timed: bool) -> RowSource:
    """Opens the data of a problem as a side does, and makes last rows of steps that the sides will make.

    Args:
      steps: how many are trained; the first and the last of them stand for all.
      timed: whether speed is measured too, on batches that are prepared however few steps are trained.

    Returns:
      The opened data: a text or a shard of gigabytes is read once.

    Raises:
      RuleError: the data are damaged, too short, of another vocabulary, or without such a step or row.
    """
    prepared = range(PREPARED_BATCHES if timed else 0)
    last = problem.global_batch - 1
    with _readable(problem.data.path or problem.data.kind):
        source = open_source(problem)
        if isinstance(source, FolderSource):
            source.check_steps(range(steps))
            source.check_steps(prepared, _MEND_TIMED)
        for step in sorted({*prepared, *((0, steps - 1) if steps else ())}):
            source.rows(step, last, last + 1)
    return source


@contextlib.contextmanager
def _readable(what: str) -> Generator[None]:
    """Makes what the system says of a path a broken rule.

    Raises:
      RuleError: the system refuses the path.
    """
    try:
        yield
    except OSError as error:
        found = error.strerror or str(error)
        raise RuleError("The data can be read.", f"--data {what[:200]}: {found}", _MEND) from None
