"""Ways to damage a checkpoint, each a function of a random generator and the folder."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

MANIFEST = "checkpoint.json"

STRANGE: list[Any] = [
    *(0, 1, -1, 2**31, 2**63, 2**64, 10**400, 1.5, 1e308, True, False, None, "", [], {}, "x" * 10_000),
    *("F64", "F32", "F16", "BF16", "I8", "U64", "BOOL", "C64", "F8_E4M3", "F4", "float99", "bfloat16"),
    *("../../etc/passwd", "/etc/passwd", "tensors-00001-of-00001.safetensors", "checkpoint.json", "a\0b"),
    *([0, 0], [2**62, 4], [-1], [[[]]], [None], [0, 10**30], {"type": "Position"}, "\ud800", "\xff"),
]
"""Values that stand nowhere in a good file, or somewhere else."""

HOSTILE = (
    *(b"\xff\xfe", b"\xef\xbb\xbf", b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 5000, b"[" * 100_000),
    *(b'{"a":' * 50_000, b"", b"\0", b"null", b"[]", b"{}", b'"', b"\xc3\x28"),
)
"""Texts to put into JSON that make parsers stumble."""


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def flip_bits(random: Random, folder: Path) -> None:
    """A few bits, half the time in the first bytes, where headers are."""
    path = random.choice(_files(folder))
    data = bytearray(path.read_bytes())
    end = len(data) if random.random() < 0.5 else min(len(data), 200)
    for _ in range(random.choice([1, 1, 2, 8])):
        data[random.randrange(end)] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def cut(random: Random, folder: Path) -> None:
    """A file loses its end."""
    path = random.choice(_files(folder))
    os.truncate(path, random.randrange(path.stat().st_size))


def grow(random: Random, folder: Path) -> None:
    """A file gets more bytes, or zeros."""
    path = random.choice(_files(folder))
    if random.random() < 0.5:
        os.truncate(path, path.stat().st_size + random.choice([1, 8, 4096, 2**34]))
    else:
        path.write_bytes(path.read_bytes() + random.randbytes(random.choice([1, 8, 100])))


def blank(random: Random, folder: Path) -> None:
    """A stretch becomes zeros, as a lost block of a disk does."""
    path = random.choice(_files(folder))
    data = bytearray(path.read_bytes())
    start = random.randrange(len(data))
    stop = min(len(data), start + random.choice([1, 16, 512]))
    data[start:stop] = bytes(stop - start)
    path.write_bytes(data)


def move_within(random: Random, folder: Path) -> None:
    """Two equal stretches of a file change places."""
    path = random.choice(_files(folder))
    data = bytearray(path.read_bytes())
    size = random.choice([1, 4, 16])
    a, b = (random.randrange(len(data) - size) for _ in range(2))
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]
    path.write_bytes(data[: path.stat().st_size])


def swap_shards(random: Random, folder: Path) -> None:
    """Two shards change places, or one lies over another."""
    a, b = random.sample(_shards(folder), 2)
    if random.random() < 0.5:
        shutil.copy(a, b)
    else:
        a.rename(folder / "between")
        b.rename(a)
        (folder / "between").rename(b)


def remove(random: Random, folder: Path) -> None:
    """A file is gone, or all are."""
    for path in random.choice([[random.choice(_files(folder))], _files(folder)]):
        path.unlink()


def replace(random: Random, folder: Path) -> None:
    """Something else lies where a file was: a link to it, to itself or another, a folder, a pipe, nothing."""
    path, other = random.sample(_files(folder), 2)
    kind = random.randrange(8)
    if kind == 0:
        path.rename(folder / "aside")
        path.symlink_to("aside")
        return
    path.unlink()
    if kind < 5:
        path.symlink_to([path.name, other.name, "nowhere", "/dev/zero"][kind - 1])
    elif kind == 5:
        path.mkdir()
    elif kind == 6:
        os.mkfifo(path)
    else:
        path.touch()


def change_header(random: Random, folder: Path) -> None:
    """The JSON header of a shard says something else, under a length that fits."""
    path = random.choice(_shards(folder))
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = _changed(random, data[8:end])
    if random.random() < 0.5:
        # The file keeps its size: only its content can give it away.
        header = header[: end - 8].ljust(end - 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[end:])


def change_header_size(random: Random, folder: Path) -> None:
    """The length of a header is another number."""
    path = random.choice(_shards(folder))
    data = path.read_bytes()
    size = random.choice([0, 1, 7, 2**20, 2**31, 2**63, 2**64 - 1, len(data), random.randrange(len(data))])
    path.write_bytes(size.to_bytes(8, "little") + data[8:])


def change_manifest(random: Random, folder: Path) -> None:
    """The description says something else."""
    path = folder / MANIFEST
    path.write_bytes(_changed(random, path.read_bytes()))


def reseal(random: Random, folder: Path) -> None:
    """The description says something else, and its hash agrees: not damage, but another writer's mistake."""
    path = folder / MANIFEST
    try:
        plain = json.loads(_changed(random, path.read_bytes()))
        plain.pop("sha256", None)
        text = json.dumps(plain, sort_keys=True)
        plain["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        path.write_text(json.dumps(plain))
    except (ValueError, RecursionError, AttributeError, TypeError):
        change_manifest(random, folder)


def _changed(random: Random, text: bytes) -> bytes:
    """Another JSON text: strange values, lost, renamed, exchanged or doubled keys, bytes that are no JSON."""
    kind = random.randrange(8)
    if kind == 0:
        at = random.randrange(len(text))
        return text[:at] + random.choice(HOSTILE) + text[at + random.choice([0, 0, 1, 20]) :]
    if kind == 1:
        return random.choice(HOSTILE)
    plain = json.loads(text)
    holder, key = random.choice(list(_places(plain)))
    if kind in (2, 3):
        holder[key] = random.choice(STRANGE)
    elif kind == 4:
        del holder[key]
    elif kind == 5:
        other, place = random.choice(list(_places(plain)))
        holder[key], other[place] = other[place], holder[key]
        return _dumps(plain) if _tree(plain) else text[:-1]
    elif kind == 6 and isinstance(holder, dict):
        holder[random.choice(["", "param/new", "\ud800", "__metadata__", key + "x"])] = holder.pop(key)
    else:
        marked = _dumps(plain).decode()
        name = json.dumps(str(key))
        return marked.replace(
            f"{name}:", f"{name}: {json.dumps(random.choice(STRANGE))}, {name}:", 1
        ).encode()
    return _dumps(plain)


def _dumps(plain: Any) -> bytes:
    return json.dumps(plain).encode()


def _tree(plain: Any) -> bool:
    """Whether exchanging two places has left a tree: no value inside itself."""
    try:
        json.dumps(plain)
    except (ValueError, RecursionError):
        return False
    return True


def _places(value: Any) -> Any:
    """(holder, key) of every value in a JSON tree."""
    for key in (
        list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        yield value, key
        yield from _places(value[key])


DAMAGES: tuple[Callable[[Random, Path], None], ...] = (
    *(flip_bits, cut, grow, blank, move_within, swap_shards, remove, replace),
    *(change_header, change_header_size, change_manifest),
)
