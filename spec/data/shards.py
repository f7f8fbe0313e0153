"""Token shards: the `.bin` files of GPT-2 training code, as one stream.

A shard is a header of 256 little-endian int32 (magic, version, token count, zeros), then uint16 tokens.
Shards are memory-mapped, so opening many gigabytes reads a few bytes of each file; several are one stream in
the order of their names, and a row may run from one into the next.

Legend: N tokens, F files.
"""

import glob
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spec.errors import RuleError
from spec.files import replacing

MAGIC = 20240520
VERSION = 1
HEADER_BYTES = 256 * 4
TOKEN = np.dtype("<u2")
MAX_TOKENS = 2**31 - 1
"""The header counts tokens in an int32."""

_HEADER = np.dtype("<i4")
_PREPARE = "make one: parity data prepare TEXT --out SHARD.bin"


@dataclass(frozen=True)
class Shard:
    """One open file; `tokens_N` is mapped, not read."""

    path: Path
    tokens_N: np.ndarray

    @property
    def num_tokens(self) -> int:
        """Tokens in this file."""
        return len(self.tokens_N)


class Shards:
    """Several shards as one stream; the interface of `spec.data.rows.TokenStream`."""

    def __init__(self, path: str, shards: list[Shard]) -> None:
        self.path = path
        self._shards = shards
        self._ends_F = np.cumsum([shard.num_tokens for shard in shards])
        self.num_tokens = int(self._ends_F[-1])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens [start, stop) as uint16: a view within one file, a copy across files."""
        parts = []
        while start < stop:
            shard, begin = self._find(start)
            part = shard.tokens_N[begin : begin + stop - start]
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, TOKEN), *parts])

    def locate(self, position: int) -> str:
        """Where a token stands, in words."""
        shard, within = self._find(position)
        return f"{shard.path}, token {within}"

    def describe(self) -> dict[str, object]:
        """What a manifest says of these shards: the facts of their headers, without reading their tokens."""
        files = [{"path": str(shard.path), "tokens": shard.num_tokens} for shard in self._shards]
        return {"kind": "shards", "path": self.path, "tokens": self.num_tokens, "files": files}

    def _find(self, position: int) -> tuple[Shard, int]:
        """The shard that holds a position of the stream, and the position within it."""
        assert 0 <= position < self.num_tokens, position
        index = int(np.searchsorted(self._ends_F, position, side="right"))
        shard = self._shards[index]
        return shard, position - int(self._ends_F[index]) + shard.num_tokens


def open_shards(path: str) -> Shards:
    """Opens a shard file, all `*.bin` of a folder, or all matches of a pattern, without reading their tokens.

    Raises:
      RuleError: nothing is there, or a file is no whole shard.
    """
    return Shards(path, [open_shard(file) for file in _shard_files(path)])


def _shard_files(path: str) -> list[Path]:
    """The files that a path means, in the order of their names."""
    place = Path(path)
    if place.is_file():
        return [place]
    if place.is_dir():
        files, found = sorted(place.glob("*.bin")), "no *.bin in this folder"
    else:
        files = sorted(Path(match) for match in glob.glob(path) if Path(match).is_file())
        found = "matches no file" if glob.has_magic(path) else "no such file or folder"
    if not files:
        raise RuleError(
            "Token shards are an existing file, folder or pattern.",
            f"{path}: {found}",
            f"name what is there, or {_PREPARE}",
        )
    return files


def open_shard(path: Path) -> Shard:
    """Opens one shard; what its header says must fit its size.

    Raises:
      RuleError: the file is empty, cut off, no shard, of another version or token width, or miscounted.
    """
    size_bytes = path.stat().st_size
    if size_bytes < HEADER_BYTES:
        found = "empty" if size_bytes == 0 else f"{size_bytes} bytes"
        raise RuleError(
            f"A token shard begins with a header of {HEADER_BYTES} bytes.", f"{path}: {found}", _PREPARE
        )
    magic, version, count = (int(field) for field in np.fromfile(path, _HEADER, count=3))
    if magic != MAGIC:
        raise RuleError(
            "A token shard begins with its magic number.", f"{path}: {magic}, not {MAGIC}", _PREPARE
        )
    if version != VERSION:
        raise RuleError(
            "A token shard is of a known version.", f"{path}: version {version}, known is {VERSION}", _PREPARE
        )
    _check_size(path, count, size_bytes - HEADER_BYTES)
    # Plain arrays slice several times faster than the memmap class, and are mapped all the same.
    return Shard(path, np.asarray(np.memmap(path, TOKEN, mode="r", offset=HEADER_BYTES, shape=(count,))))


def _check_size(path: Path, count: int, data_bytes: int) -> None:
    """The header's token count and the bytes after it must agree."""
    if count < 1:
        raise RuleError(
            "A token shard holds at least one token.", f"{path}: its header counts {count}", _PREPARE
        )
    expected_bytes = count * TOKEN.itemsize
    if data_bytes == expected_bytes:
        return
    numbers = f"{path}: {count} tokens take {expected_bytes} bytes, {data_bytes} follow the header"
    if data_bytes % count == 0 and data_bytes // count in (1, 4, 8):
        mend = f"these look like {8 * data_bytes // count}-bit tokens: write them again as uint16"
    elif data_bytes < expected_bytes:
        mend = "the file was cut off: copy it again, or make it again"
    else:
        mend = "the header was not written last, or something was appended: make the file again"
    raise RuleError("A token shard holds as many uint16 tokens as its header counts.", numbers, mend)


def write_shard(path: Path | str, parts: Iterable[np.ndarray]) -> int:
    """Writes a shard, part by part, and returns its number of tokens. An existing file is never overwritten.

    Args:
      parts: one-dimensional integer arrays with values in [0, 65536).

    Raises:
      RuleError: the file exists, a value is no uint16, or there are no tokens or more than MAX_TOKENS.
    """
    path = Path(path)
    if path.exists():
        raise RuleError(
            "A shard does not replace a file.", f"{path} exists", "name another file, or remove it first"
        )
    count = 0
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(bytes(HEADER_BYTES))
        for part_N in parts:
            file.write(_as_tokens(part_N, count).tobytes())
            count += len(part_N)
        if not 1 <= count <= MAX_TOKENS:
            raise RuleError(
                f"A shard holds 1 to {MAX_TOKENS} tokens.", f"{path}: {count}", "give a text, or split it up"
            )
        header = np.zeros(HEADER_BYTES // _HEADER.itemsize, _HEADER)
        header[:3] = MAGIC, VERSION, count
        file.seek(0)
        file.write(header.tobytes())
    return count


def _as_tokens(part_N: np.ndarray, first: int) -> np.ndarray:
    """The part as uint16; a value that does not fit is named with its position."""
    if part_N.dtype.kind not in "iu":
        raise RuleError("Tokens are whole numbers.", f"dtype {part_N.dtype}", "write an integer array")
    wrong_N = (part_N < 0) | (part_N > np.iinfo(TOKEN).max)
    if wrong_N.any():
        at = int(wrong_N.argmax())
        raise RuleError("A token of a shard fits 16 bits.", f"token {first + at} is {part_N[at]}")
    return part_N.astype(TOKEN)
