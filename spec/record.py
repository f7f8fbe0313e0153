"""How a run is written down: whole files by rename, growing files line by line, floats to the last bit.

A process killed at any moment leaves a folder that still reads: no half-written JSON, at most one cut last
line.
"""

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from spec.errors import RuleError
from spec.files import replacing


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all; its folder is made."""
    with replacing(path) as temporary:
        temporary.write_text(text)


def write_json(path: Path, value: Any) -> None:
    """Writes strict JSON; a NaN or infinity is a programming error (see `float_fields`)."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def float_bits(value: float) -> str:
    """The float64 bits in hexadecimal, so that equality means equality."""
    return "0x" + struct.pack(">d", value).hex()


def from_bits(bits: str) -> float:
    """The float64 of `float_bits`."""
    return struct.unpack(">d", bytes.fromhex(bits[2:]))[0]


def float_fields(name: str, value: float) -> dict[str, Any]:
    """`{name: decimal or null, name_bits: hex}`. The decimal is null for what JSON cannot say (NaN,
    infinity); the bits always tell."""
    value = float(value)
    return {name: value if math.isfinite(value) else None, f"{name}_bits": float_bits(value)}


class Lines:
    """A growing JSONL file: one flushed line a record."""

    def __init__(self, path: Path) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")

    def write(self, value: dict[str, Any]) -> None:
        """Appends one record."""
        self._file.write(json.dumps(value, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file; records already written stay."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSONL file; a last line cut by a kill is left out, a damaged line elsewhere is an
    error."""
    lines = Path(path).read_text().split("\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                return
            raise RuleError(
                "Every line of a record is JSON.", f"{path}:{number}: {error}", "make the run again"
            ) from None
