"""`checkpoint.json`: everything about a checkpoint but the tensors' bytes, sealed by a hash over itself.

A tensor is known by name, shard, dtype, shape and the hash of all its bits; the seal makes the rest as safe
as the tensors. Must not: read or write a tensor.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from spec import codec
from spec.errors import RuleError
from spec.run import RunSpec

MANIFEST = "checkpoint.json"

VERSION = 1
"""Raised when a reader of the version before could misread a checkpoint."""

DTYPES = (
    *("float64", "float32", "float16", "bfloat16"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"),
)
"""Dtypes of tensors in a checkpoint, by NumPy's names (ml_dtypes gives bfloat16)."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where a run stands."""

    step: int
    """Training steps done; the next step reads the rows of step `step`."""
    applied: int
    """Updates made: the row of the table of learning rates that the next update reads."""
    skipped: int
    """Updates that the non-finite guard left out."""

    def __post_init__(self) -> None:
        for name in ("step", "applied", "skipped"):
            if getattr(self, name) < 0:
                raise RuleError("A run's counters are not negative.", f"{name} = {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class TensorEntry:
    """One tensor, and what its bytes must hash to."""

    shard: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    """`spec.weights.tensor_sha256`: dtype, shape and bytes."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What `checkpoint.json` holds."""

    version: int
    position: Position
    spec: RunSpec
    problem_sha256: str
    """`spec.problem.sha256()`, for readers that do not have this code."""
    written_by: dict[str, Any]
    """What the writer says of itself: side, mode, processes, reduction plan, versions, generator state."""
    shards: dict[str, int]
    """Bytes of each shard file."""
    tensors: dict[str, TensorEntry]


def seal(manifest: Manifest) -> str:
    """The text of `checkpoint.json`: the manifest, and under `sha256` the hash of the rest."""
    plain = codec.to_dict(manifest)
    return json.dumps({**plain, "sha256": _digest(plain)}, indent=1, allow_nan=False) + "\n"


def unseal(text: bytes) -> Manifest:
    """The manifest of the text of a `checkpoint.json`.

    Raises:
      RuleError: the text was changed since it was written, or another version wrote it.
    """
    plain = json.loads(text)
    plain.pop("sha256")
    return codec.from_dict(Manifest, plain)


def _digest(plain: dict[str, Any]) -> str:
    """The hash of a JSON value, whatever its white space and order."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True, allow_nan=False).encode()).hexdigest()
