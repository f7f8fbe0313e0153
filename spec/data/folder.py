"""Batches written down once, so that both sides read the same bytes: a folder of `stepNNNNNN.safetensors`.

Arrays stand under `batch/NAME`, as in the tensors that a pass writes, so such a folder can be read back too.
Must not: know what the arrays mean; a pair's batches may hold any.

Legend: B rows.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from spec.data.rows import Batch, BatchSpec, RowSource
from spec.errors import RuleError
from spec.weights import load_tensors, save_tensors
from spec.workloads.gpt import IGNORE_LABEL

_PREFIX = "batch/"
_MORE = "ask for fewer steps, or write more batches"


def batch_file(folder: Path | str, step: int) -> Path:
    """The file of one step."""
    return Path(folder) / f"step{step:06d}.safetensors"


def write_batches(folder: Path | str, source: RowSource, steps: int, global_batch: int) -> None:
    """Writes the global batches of steps [0, steps), one file each."""
    for step in range(steps):
        batch = source.rows(step, 0, global_batch)
        save_tensors(batch_file(folder, step), {_PREFIX + name: array for name, array in batch.items()})


class FolderSource:
    """Reads batches back; a `RowSource`.

    Args:
      vocab: when given, `tokens` and `labels` must lie in [0, vocab); a label may be IGNORE_LABEL too.
    """

    def __init__(self, folder: Path | str, *, vocab: int | None = None) -> None:
        self._folder, self._vocab = Path(folder), vocab
        if not self._folder.is_dir():
            raise RuleError("Batches lie in a folder.", f"{folder}: no such folder", "write them first")
        self._files = sorted(self._folder.glob("step*.safetensors"))
        if not self._files:
            raise RuleError(
                "A folder of batches holds a file a step.",
                f"{folder}: no stepNNNNNN.safetensors",
                "write them first",
            )
        self._spec = _spec(_read(self._files[0]))

    def rows(self, step: int, start: int, stop: int) -> Batch:
        """Rows [start, stop) of the batch of `step`.

        Raises:
          RuleError: no such step or row, arrays unlike those of the first step, or a token that is not
            in the vocabulary.
        """
        path = batch_file(self._folder, step)
        if not path.is_file():
            raise self._missing(path, _MORE)
        batch = _read(path)
        self._check_arrays(path, batch, stop)
        rows = {name: array[start:stop] for name, array in batch.items()}
        if self._vocab is not None:
            check_vocabulary(rows, self._vocab, f"{path}: ", start)
        return rows

    def check_steps(self, steps: Iterable[int], mend: str = _MORE) -> None:
        """Makes sure that each of some steps has a file, by the names alone: a run may have very many.

        Raises:
          RuleError: the first step without one is named.
        """
        names = {path.name for path in self._files}
        for step in steps:
            path = batch_file(self._folder, step)
            if path.name not in names:
                raise self._missing(path, mend)

    def _missing(self, path: Path, mend: str) -> RuleError:
        numbers = f"{self._folder}: no {path.name} among {len(self._files)} steps"
        return RuleError("Every step has its batch.", numbers, mend)

    def _check_arrays(self, path: Path, batch: Batch, stop: int) -> None:
        spec = _spec(batch)
        if spec != self._spec:
            name = next(n for n in sorted(spec | self._spec) if spec.get(n) != self._spec.get(n))
            raise RuleError(
                "Every step has arrays of the same names, shapes and dtypes.",
                f"{path}: {name} is {spec.get(name)}, in {self._files[0].name} {self._spec.get(name)}",
            )
        num_rows = {name: shape[0] if shape else 0 for name, (shape, _) in spec.items()}
        short = min(num_rows, key=lambda name: num_rows[name])
        if num_rows[short] < stop:
            raise RuleError(
                "A written batch has the rows of the global batch.",
                f"{path}: {short} has {num_rows[short]} rows, row {stop - 1} was asked for",
                "take no more rows a step than the folder was written with",
            )

    def describe(self) -> dict[str, object]:
        """Path, number of steps, and the hash of all files in the order of steps (they are read for it)."""
        digest = hashlib.sha256()
        for path in self._files:
            digest.update(path.read_bytes())
        return {
            "kind": "folder",
            "path": str(self._folder),
            "sha256": digest.hexdigest(),
            "steps": len(self._files),
        }

    def batch_spec(self, num_rows: int) -> BatchSpec:
        """The arrays of the first step with `num_rows` rows."""
        return {name: ((num_rows, *shape[1:]), dtype) for name, (shape, dtype) in self._spec.items()}


def _read(path: Path) -> Batch:
    """The arrays under `batch/` of one file."""
    tensors = load_tensors(path)
    batch = {name.removeprefix(_PREFIX): a for name, a in tensors.items() if name.startswith(_PREFIX)}
    if not batch:
        raise RuleError(
            "A batch file holds arrays under batch/.", f"{path}: {', '.join(tensors) or 'nothing'}"
        )
    return batch


def _spec(batch: Batch) -> BatchSpec:
    return {name: (array.shape, array.dtype) for name, array in batch.items()}


def check_vocabulary(rows: Batch, vocab: int, source: str = "", first_row: int = 0) -> None:
    """Makes sure that `tokens` and `labels`, where there are such, lie in [0, vocab); a label may be ignored.

    Raises:
      RuleError: the first that does not is named, its row counted from `first_row`. One framework would end
        the process at it, the other read another class without a word.
    """
    for name, lowest in (("tokens", 0), ("labels", IGNORE_LABEL)):
        array = rows.get(name, np.empty(0, np.int32))
        wrong = (array < lowest) | (array >= vocab)
        if wrong.any():
            at = np.unravel_index(int(wrong.argmax()), array.shape)
            where = [int(at[0]) + first_row, *(int(i) for i in at[1:])]
            raise RuleError(
                "Every token is in the vocabulary.",
                f"{source}{name}{where} is {array[at]}, vocabulary {vocab}",
                "take a larger vocabulary, or batches made for this one",
            )
