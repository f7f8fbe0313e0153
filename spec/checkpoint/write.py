"""Saver: checkpoints written in the background, each whole or not there, older ones kept until then.

Must not: wait for the disk while the run could go on.
"""

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from spec.checkpoint.find import step_folder
from spec.checkpoint.format import MANIFEST, VERSION, Manifest, Position, TensorEntry, seal
from spec.run import RunSpec
from spec.weights import save_tensors, tensor_sha256

SHARD_BYTES = 1 << 30
"""Shards are closed before they pass this size; a larger tensor has one to itself."""


class Saver:
    """Writes the checkpoints of one run, on one rank; one Saver a folder.

    Args:
      folder: where `stepNNNNNN/` folders appear; made if need be.
      keep: how many of the newest stay; None keeps all.
    """

    def __init__(self, folder: Path, keep: int | None = None, shard_bytes: int = SHARD_BYTES) -> None:
        self.folder, self.keep, self.shard_bytes = Path(folder), keep, shard_bytes
        self.folder.mkdir(parents=True, exist_ok=True)
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[Path] | None = None
        self._newest: Path | None = None

    def save(
        self,
        spec: RunSpec,
        position: Position,
        tensors: Mapping[str, np.ndarray],
        written_by: dict[str, Any],
    ) -> None:
        """Begins to write a checkpoint and returns; waits first for an earlier one still being written.

        Args:
          tensors: host copies under `phase/name`, the Saver's from here on: they must not change.
          written_by: what the writer says of itself, fit for JSON; see `Manifest.written_by`.

        Raises:
          RuleError: the earlier one could not be written, or one of this step exists.
        """
        self.wait()
        self._writing = self._thread.submit(self._write, spec, position, dict(tensors), written_by)

    def wait(self) -> Path | None:
        """Waits for what is being written; the newest checkpoint that this Saver wrote.

        Raises:
          RuleError: it could not be written (disk full); those before are intact. Said once: the Saver can
            be used further.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            self._newest = writing.result()
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

    def _write(
        self, spec: RunSpec, position: Position, tensors: dict[str, np.ndarray], written_by: dict[str, Any]
    ) -> Path:
        final = self.folder / step_folder(position.step)
        temporary = self.folder / f".{final.name}.{os.getpid()}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        shard = "tensors-00001.safetensors"
        save_tensors(temporary / shard, tensors)
        manifest = Manifest(
            version=VERSION,
            position=position,
            spec=spec,
            problem_sha256=spec.problem.sha256(),
            written_by=written_by,
            shards={shard: (temporary / shard).stat().st_size},
            tensors={
                name: TensorEntry(
                    shard=shard, dtype=array.dtype.name, shape=array.shape, sha256=tensor_sha256(array)
                )
                for name, array in tensors.items()
            },
        )
        (temporary / MANIFEST).write_text(seal(manifest))
        os.rename(temporary, final)
        return final
