"""Reads protocol buffer messages by the descriptors that the installed jaxlib carries in its library.

Enough of the wire format for XLA's options: scalars, enums, strings, messages, and repeated ones. So a flag's
name, type and default come from the version that will run, with no copy of its schema here. Must not: write
messages. Format: https://protobuf.dev/programming-guides/encoding
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jaxlib

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE, _FLOAT, _BOOL, _STRING, _MESSAGE, _ENUM, _REPEATED = 1, 2, 8, 9, 11, 14, 3
_LAST_FIELD_OF_A_FILE = 14
"""The largest field number in a FileDescriptorProto: what follows it in memory is something else."""


@dataclass(frozen=True)
class Field:
    """One field of a message."""

    name: str
    number: int
    type: int
    type_name: str
    """Of an enum or message, without its package."""
    repeated: bool

    @property
    def is_message(self) -> bool:
        """Whether its value is a message, which `decode` leaves as bytes."""
        return self.type == _MESSAGE


@dataclass(frozen=True)
class Schema:
    """Messages and enums of one .proto file, nested ones by their own name."""

    messages: dict[str, dict[int, Field]]
    enums: dict[str, dict[int, str]]


@cache
def schema(proto: str) -> Schema | None:
    """The schema of a file such as `xla/xla.proto`; None where the library does not carry it."""
    library = Path(jaxlib.__file__).with_name("libjax_common.so")
    key = bytes([0x0A, len(proto)]) + proto.encode()
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        start = memory.find(key)
        # A descriptor of more than a megabyte would be news.
        data = memory[start : start + 2**20] if start >= 0 else b""
    found = Schema({}, {})
    for number, value in _descriptor_fields(data):
        if number == 4:
            _add_message(found, value)
        elif number == 5:
            _add_enum(found, value)
    return found if found.messages else None


def decode(data: bytes, message: str, schema: Schema) -> dict[str, Any]:
    """The fields that are set in a message: enums by name, bytes of nested messages as they are."""
    fields, values = schema.messages[message], {}
    for number, wire, raw in _wire(data):
        if (field := fields.get(number)) is None:
            continue
        packed = field.repeated and wire == _BYTES and field.type not in (_STRING, _MESSAGE)
        items = list(_packed(raw)) if packed else [raw]
        read = [_value(field, item, schema) for item in items]
        if field.repeated:
            values.setdefault(field.name, []).extend(read)
        else:
            values[field.name] = read[-1]
    return values


def unset(field: Field, schema: Schema) -> Any:
    """What a field that is not set stands for."""
    if field.repeated:
        return []
    zero = {_STRING: "", _BOOL: False, _DOUBLE: 0.0, _FLOAT: 0.0, _MESSAGE: None}
    return schema.enums.get(field.type_name, {}).get(0, 0) if field.type == _ENUM else zero.get(field.type, 0)


def _value(field: Field, raw: Any, schema: Schema) -> Any:
    match field.type:
        case 8:
            return bool(raw)
        case 9:
            return raw.decode(errors="replace")
        case 14:
            return schema.enums.get(field.type_name, {}).get(raw, raw)
        case 1:
            return struct.unpack("<d", raw)[0]
        case 2:
            return struct.unpack("<f", raw)[0]
        case 3 | 5:
            return raw - 2**64 if raw >= 2**63 else raw
    return raw


def _descriptor_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Fields of a FileDescriptorProto that ends somewhere inside the data."""
    for number, wire, value in _wire(data):
        if wire not in (_VARINT, _BYTES) or not 0 < number <= _LAST_FIELD_OF_A_FILE:
            return
        yield number, value


def _add_message(found: Schema, data: bytes) -> None:
    name, fields = "", {}
    for number, _, value in _wire(data):
        match number:
            case 1:
                name = value.decode()
            case 2:
                own = {n: v for n, _, v in _wire(value)}
                type_name = own.get(6, b"").decode().rpartition(".")[2]
                field = Field(own[1].decode(), own[3], own[5], type_name, own.get(4) == _REPEATED)
                fields[field.number] = field
            case 3:
                _add_message(found, value)
            case 4:
                _add_enum(found, value)
    found.messages[name] = fields


def _add_enum(found: Schema, data: bytes) -> None:
    name, values = "", {}
    for number, _, value in _wire(data):
        if number == 1:
            name = value.decode()
        elif number == 2:
            own = {n: v for n, _, v in _wire(value)}
            values[own.get(2, 0)] = own[1].decode()
    found.enums[name] = values


def _wire(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """(field number, wire type, value); ends where the data end or are no message any more."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire == _BYTES:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
            value, at = data[at : at + length], at + length
        else:
            return
        if at > len(data):
            return
        yield number, wire, value


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            break
    return value, at
