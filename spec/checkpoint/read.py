"""Checkpoint: opened and checked, its tensors read one by one and verified to the bit.

Must not: give out a tensor that is not exactly the one that was saved, or hold more than one in memory.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spec.checkpoint.format import MANIFEST, Manifest, Position, unseal
from spec.errors import RuleError
from spec.run import Problem, RunSpec
from spec.weights import load_tensors, tensor_sha256


class Checkpoint:
    """A checkpoint on disk whose description was read and verified.

    `tensors` is lazy: each access reads one tensor of it, verifies its hash and keeps nothing, so a state of
    many gigabytes is loaded with one tensor more in memory.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.tensors: Mapping[str, np.ndarray] = _Tensors(path, manifest)

    @property
    def position(self) -> Position:
        """Where the run stood."""
        return self.manifest.position

    @property
    def spec(self) -> RunSpec:
        """The run that wrote it."""
        return self.manifest.spec

    @property
    def written_by(self) -> dict[str, Any]:
        """What the writer said of itself."""
        return self.manifest.written_by

    def check_fits(self, problem: Problem) -> None:
        """Refuses to go on with another problem. The number of steps may differ, and where data lie.

        Raises:
          RuleError: a field differs; it is named with both values.
        """


class _Tensors(Mapping[str, np.ndarray]):
    def __init__(self, path: Path, manifest: Manifest) -> None:
        self._path, self._entries = path, manifest.tensors

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self._entries[name]
        file = self._path / entry.shard
        array = load_tensors(file, [name])[name]
        if tensor_sha256(array) != entry.sha256:
            raise RuleError(
                "A tensor of a checkpoint is the one that was saved, to the bit.",
                f"{file}: {name} has another hash",
                "take another checkpoint, or copy it again",
            )
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Opens a checkpoint folder: its description is read and verified, its shards are there in full size.

    Raises:
      RuleError: something is missing or damaged; the file is named.
    """
    path = Path(path)
    return Checkpoint(path, unseal((path / MANIFEST).read_bytes()))
