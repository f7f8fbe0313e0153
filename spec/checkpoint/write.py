"""Saver: checkpoints written in the background, each whole or not there, older ones kept until then.

A checkpoint grows in a hidden folder, is synced to the disk file by file and gets its name last, so a process
killed at any moment loses no checkpoint that had one. Hashing and writing release the interpreter lock. Must
not: hold the run up longer than the write before takes.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from spec.checkpoint.find import checkpoints_in, step_folder
from spec.checkpoint.format import (
    DTYPES,
    MANIFEST,
    VERSION,
    Manifest,
    Position,
    TensorEntry,
    seal,
    shard_name,
)
from spec.errors import RuleError
from spec.files import sync
from spec.record import write_text
from spec.run import RunSpec
from spec.weights import Tensors, save_tensors, tensor_sha256

SHARD_BYTES = 1 << 30
"""A shard is closed before it passes this size; a larger tensor has one to itself."""


class Saver:
    """Writes the checkpoints of one run, on one rank. What a killed Saver left half-written is removed.

    Args:
      folder: where `stepNNNNNN/` folders appear; made if need be. One Saver at a time.
      keep: how many of the newest stay; None keeps all.

    Raises:
      RuleError: the folder cannot be written, or `keep` is below 1.
    """

    def __init__(self, folder: Path, keep: int | None = None, shard_bytes: int = SHARD_BYTES) -> None:
        if keep is not None and keep < 1:
            raise RuleError("At least one checkpoint is kept.", f"keep = {keep}")
        self.folder, self.keep, self.shard_bytes = Path(folder), keep, shard_bytes
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for leftover in self.folder.glob(".step*.tmp"):
                shutil.rmtree(leftover)
        except OSError as error:
            raise RuleError(
                "Checkpoints can be written.", f"{folder}: {error.strerror}", "name a writable folder"
            ) from None
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None
        self._newest: Path | None = None

    def save(
        self,
        spec: RunSpec,
        position: Position,
        tensors: Mapping[str, np.ndarray],
        written_by: dict[str, Any],
    ) -> None:
        """Begins to write a checkpoint and returns; waits first for an earlier one still being written.

        Who calls `wait` before making the copies never holds two sets of them.

        Args:
          tensors: host copies under `phase/name`. They are the Saver's from here on and must not change;
            memory is let go shard by shard if nobody else holds it.
          written_by: what the writer says of itself, fit for JSON; see `Manifest.written_by`.

        Raises:
          RuleError: the earlier one could not be written, one of this step exists, or a dtype is unknown.
        """
        self.wait()
        final = self.folder / step_folder(position.step)
        if final.exists():
            raise RuleError("A checkpoint is not written over another.", str(final), "name another folder")
        for name, array in tensors.items():
            if array.dtype.name not in DTYPES or not array.dtype.isnative:
                raise RuleError(
                    "A checkpoint holds tensors of known dtypes.",
                    f"{name}: {array.dtype.str} {array.dtype.name}",
                    f"known: {', '.join(DTYPES)}",
                )
        manifest = Manifest(
            version=VERSION,
            position=position,
            spec=spec,
            problem_sha256=spec.problem.sha256(),
            # A copy: the caller may go on changing what it gave.
            written_by=json.loads(json.dumps(written_by, allow_nan=False)),
            shards={},
            tensors={},
        )
        self._writing = self._thread.submit(self._write, final, manifest, dict(tensors))

    def wait(self) -> Path | None:
        """Waits for what is being written; the newest checkpoint that this Saver wrote.

        Raises:
          RuleError: it could not be written (disk full); those before are intact. Said once: the Saver can
            be used further.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
        return self._newest

    def close(self) -> None:
        """Waits, then ends the background thread.

        Raises:
          RuleError: as `wait`.
        """
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _write(self, final: Path, manifest: Manifest, tensors: Tensors) -> None:
        size = sum(array.nbytes for array in tensors.values())
        temporary = _hidden(final)
        try:
            temporary.mkdir()
            shards, entries = write_shards(temporary, tensors, self.shard_bytes)
            manifest = dataclasses.replace(manifest, shards=shards, tensors=entries)
            write_text(temporary / MANIFEST, seal(manifest))
            sync(temporary / MANIFEST)
            sync(temporary)
            os.rename(temporary, final)
            self._newest = final
            sync(self.folder)
            self._prune(manifest.position.step)
        except (OSError, SafetensorError, RuleError) as error:
            cause = error.numbers if isinstance(error, RuleError) else str(error)
            raise RuleError(
                "A checkpoint can be written.",
                f"{final} ({size:,} bytes): {cause}",
                "make room, keep fewer, or name another folder; the checkpoints before it are whole",
            ) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _prune(self, step: int) -> None:
        """Removes what `keep` does not keep. Later steps than the one just written are another run's."""
        if self.keep is None:
            return
        older = [path for number, path in checkpoints_in(self.folder).items() if number < step]
        for path in older[: max(0, len(older) + 1 - self.keep)]:
            os.rename(path, _hidden(path))
            shutil.rmtree(_hidden(path))


def write_shards(
    folder: Path, tensors: Tensors, shard_bytes: int
) -> tuple[dict[str, int], dict[str, TensorEntry]]:
    """Writes the tensors, synced to the disk, and lets go of them: `tensors` is empty afterwards.

    Returns:
      Bytes by shard, and what each tensor is.
    """
    shards, entries = {}, {}
    groups = _grouped(tensors, shard_bytes)
    for number, names in enumerate(groups, start=1):
        shard = shard_name(number, of=len(groups))
        for name in names:
            array = tensors[name]
            entries[name] = TensorEntry(
                shard=shard, dtype=array.dtype.name, shape=array.shape, sha256=tensor_sha256(array)
            )
        save_tensors(folder / shard, {name: tensors.pop(name) for name in names})
        sync(folder / shard)
        shards[shard] = (folder / shard).stat().st_size
    return shards, entries


def _hidden(path: Path) -> Path:
    """The name under which a checkpoint is made and removed; `checkpoints_in` does not see it."""
    return path.with_name(f".{path.name}.tmp")


def _grouped(tensors: Tensors, shard_bytes: int) -> list[list[str]]:
    """The names shard by shard, in their order."""
    groups: list[list[str]] = []
    room = 0
    for name, array in tensors.items():
        if not groups or array.nbytes > room:
            groups.append([])
            room = shard_bytes
        groups[-1].append(name)
        room -= array.nbytes
    return groups
