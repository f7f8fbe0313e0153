"""Checkpoint: opened and checked, its tensors read one by one and verified to the bit.

Must not: give out a tensor that is not exactly the one that was saved, hold more than one in memory, follow a
link, or trust a number in a file before the hash over it.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spec.checkpoint.find import checkpoints_in
from spec.checkpoint.fits import check_fits
from spec.checkpoint.format import MANIFEST, Manifest, Position, unseal
from spec.errors import RuleError
from spec.run import Problem, RunSpec
from spec.weights import TensorFile, tensor_sha256

MAX_MANIFEST_BYTES = 1 << 28
"""A larger `checkpoint.json` is none: a tensor takes some 250 bytes of it."""


class Checkpoint:
    """A checkpoint on disk whose description was read and verified.

    `tensors` is lazy: each access reads one tensor, verifies it and keeps nothing, so that a state of many
    gigabytes is loaded with one tensor more in memory. An access to a damaged one raises RuleError.
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
        """Refuses to go on with another problem; see `spec.checkpoint.fits`.

        Raises:
          RuleError: a field differs; it is named with both values.
        """
        check_fits(self.path, self.manifest, problem)

    def check_steps_left(self, steps: int) -> None:
        """Refuses to go on where nothing is left to do.

        Args:
          steps: where the run is to stop.

        Raises:
          RuleError: as many steps were done, or more.
        """
        if self.position.step >= steps:
            raise RuleError(
                "A run that goes on has steps left.",
                f"{self.path}: {self.position.step} steps done of {steps}",
                "give more --steps, or name an earlier checkpoint",
            )


class _Tensors(Mapping[str, np.ndarray]):
    def __init__(self, path: Path, manifest: Manifest) -> None:
        self._path, self._entries = path, manifest.tensors
        self._shard: TensorFile | None = None

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self._entries[name]
        file = self._path / entry.shard
        try:
            # One shard stays open: its header is read once when tensors are asked for in their order.
            if self._shard is None or self._shard.path != file:
                _plain_size(file)
                self._shard = TensorFile(file)
            array = self._shard.read(name)
        except RuleError as error:
            raise RuleError(error.rule, f"{error.numbers}; reading {name}", _mend(self._path)) from None
        digest = tensor_sha256(array)
        if digest != entry.sha256:
            raise RuleError(
                "A tensor of a checkpoint is the one that was saved, to the bit.",
                f"{file}: {name} has the hash {digest[:10]}, saved was {entry.sha256[:10]}",
                _mend(self._path),
            )
        return array

    def __contains__(self, name: object) -> bool:
        return name in self._entries

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
    file = path / MANIFEST
    try:
        size = _plain_size(file)
        if size > MAX_MANIFEST_BYTES:
            raise RuleError("The description of a checkpoint is short.", f"{size:,} bytes")
        manifest = unseal(file.read_bytes())
        for shard, size in manifest.shards.items():
            file = path / shard
            if _plain_size(file) != size:
                raise RuleError(
                    "A shard of a checkpoint has the size it was written with.",
                    f"{_plain_size(file):,} bytes, written were {size:,}",
                )
    except OSError as error:
        raise RuleError("A checkpoint can be read.", f"{file}: {error.strerror}", _mend(path)) from None
    except RuleError as error:
        raise RuleError(error.rule, f"{file}: {error.numbers}", _mend(path)) from None
    return Checkpoint(path, manifest)


def _plain_size(file: Path) -> int:
    """Bytes of a file; a link, a folder or a pipe is refused."""
    try:
        found = os.lstat(file)
    except OSError as error:
        raise RuleError("The files of a checkpoint are there.", f"{file.name}: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise RuleError("The files of a checkpoint are plain files.", f"{file.name} is none")
    return found.st_size


def _mend(path: Path) -> str:
    """Names the checkpoint before a damaged one, where there is one."""
    before = [other for other in checkpoints_in(path.parent).values() if other.name < path.name]
    return f"{f'take the one before it, {before[-1]}, or ' if before else ''}copy this one again"
