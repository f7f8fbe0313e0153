"""`checkpoint.json`: everything about a checkpoint but the tensors' bytes, sealed by a hash over itself.

A tensor is known by name, shard, dtype, shape and the hash of all its bits; the seal makes the rest as safe
as the tensors: step, counters and description come back as they were written, or not at all. Random numbers
need no place of their own: each is a function of the seeds in the spec and the step. Must not: touch files.
"""

import hashlib
import json
import re
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
    """One tensor: where it lies and what it must be."""

    shard: str
    dtype: str
    """One of `DTYPES`."""
    shape: tuple[int, ...]
    sha256: str
    """`spec.weights.tensor_sha256`: dtype, shape and bytes."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise RuleError("A checkpoint holds tensors of known dtypes.", repr(self.dtype))
        if min(self.shape, default=0) < 0:
            raise RuleError("A shape is not negative.", str(self.shape))


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

    def __post_init__(self) -> None:
        for shard in self.shards:
            if not _SHARD.fullmatch(shard):
                raise RuleError("A shard is a plain file name.", repr(shard))
        for name, entry in self.tensors.items():
            if entry.shard not in self.shards:
                raise RuleError("A tensor lies in a listed shard.", f"{name} in {entry.shard!r}")


_SHARD = re.compile(r"tensors-\d{5,}-of-\d{5,}\.safetensors")


def shard_name(number: int, of: int) -> str:
    """File name of a shard; `number` counts from 1."""
    return f"tensors-{number:05d}-of-{of:05d}.safetensors"


def seal(manifest: Manifest) -> str:
    """The text of `checkpoint.json`: the manifest, and under `sha256` the hash of the rest."""
    plain = codec.to_dict(manifest)
    return json.dumps({**plain, "sha256": _digest(plain)}, indent=1, allow_nan=False) + "\n"


def unseal(text: bytes) -> Manifest:
    """The manifest in the text of a `checkpoint.json`.

    Raises:
      RuleError: the text was changed since it was written, or another version wrote it.
    """
    try:
        plain = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_number)
        sealed = plain.pop("sha256", None) if isinstance(plain, dict) else None
        digest = _digest(plain)
    except (ValueError, RecursionError) as error:
        raise RuleError("The description of a checkpoint is strict JSON.", str(error)[:200]) from None
    if isinstance(plain, dict) and plain.get("version") != VERSION:
        raise RuleError(
            f"A checkpoint has version {VERSION} of the format.", f"version {str(plain.get('version'))[:20]}"
        )
    if sealed != digest:
        raise RuleError("The description of a checkpoint is as it was written.", "its hash differs")
    return codec.from_dict(Manifest, plain)


def _digest(plain: Any) -> str:
    """The hash of a JSON value, whatever its white space and the order of its keys."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")
