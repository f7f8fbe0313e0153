"""Token shards: what is written is read, and every damaged file is refused in words."""

import os
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spec.data.prepare import prepare
from spec.data.rows import StreamRows
from spec.data.shards import HEADER_BYTES, MAGIC, MAX_TOKENS, VERSION, open_shards, write_shard
from spec.errors import RuleError

TOKENS = st.lists(st.integers(0, 65535), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Path]:
    """Puts bytes into a new file."""

    def put(data: bytes) -> Path:
        path = tmp_path_factory.mktemp("shard") / "a.bin"
        path.write_bytes(data)
        return path

    return put


def shard_bytes(
    tokens: list[int],
    *,
    magic: int = MAGIC,
    version: int = VERSION,
    count: int | None = None,
    kind: str = "H",
) -> bytes:
    """A shard packed without the code under test."""
    header = struct.pack("<256i", magic, version, len(tokens) if count is None else count, *[0] * 253)
    return header + struct.pack(f"<{len(tokens)}{kind}", *tokens)


def refusal(path: Path | str) -> str:
    """The message with which a shard is refused; it names the file."""
    with pytest.raises(RuleError) as caught:
        open_shards(str(path))
    assert str(path) in caught.value.numbers
    assert caught.value.mend
    return str(caught.value)


@given(tokens=TOKENS)
def test_a_shard_is_read_as_it_was_packed(place: Callable[[bytes], Path], tokens: list[int]) -> None:
    shards = open_shards(str(place(shard_bytes(tokens))))
    assert shards.num_tokens == len(tokens)
    assert shards.read(0, len(tokens)).tolist() == tokens


@given(parts=st.lists(TOKENS, min_size=1, max_size=4))
def test_the_writer_packs_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]]
) -> None:
    path = tmp_path_factory.mktemp("shard") / "a.bin"
    flat = [token for part in parts for token in part]
    assert write_shard(path, (np.array(part) for part in parts)) == len(flat)
    assert path.read_bytes() == shard_bytes(flat)
    assert os.listdir(path.parent) == ["a.bin"]


@given(files=st.lists(TOKENS, min_size=1, max_size=4), data=st.data())
def test_several_shards_are_one_stream_in_the_order_of_names(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[int]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    for number, tokens in enumerate(files):
        (folder / f"{number}.bin").write_bytes(shard_bytes(tokens))
    (folder / "notes.txt").write_text("no shard")
    flat = [token for tokens in files for token in tokens]
    start = data.draw(st.integers(0, len(flat)))
    stop = data.draw(st.integers(start, len(flat)))
    for path in (folder, folder / "*.bin"):
        assert open_shards(str(path)).num_tokens == len(flat)
        assert open_shards(str(path)).read(start, stop).tolist() == flat[start:stop]
    assert open_shards(str(folder)).locate(len(flat) - 1) == (
        f"{folder}/{len(files) - 1}.bin, token {len(files[-1]) - 1}"
    )


@given(tokens=TOKENS, data=st.data())
def test_a_truncated_shard_is_refused(
    place: Callable[[bytes], Path], tokens: list[int], data: st.DataObject
) -> None:
    whole = shard_bytes(tokens)
    size = data.draw(st.integers(0, len(whole) - 1))
    message = refusal(place(whole[:size]))
    if size == 0:
        assert "empty" in message
    elif size < HEADER_BYTES:
        assert f"{size} bytes" in message
    else:
        assert f"{2 * len(tokens)} bytes, {size - HEADER_BYTES} follow" in message


@given(magic=st.integers(-(2**31), 2**31 - 1))
def test_a_wrong_magic_is_refused(place: Callable[[bytes], Path], magic: int) -> None:
    assume(magic != MAGIC)
    assert f"{magic}, not {MAGIC}" in refusal(place(shard_bytes([1, 2], magic=magic)))


@given(version=st.integers(-(2**31), 2**31 - 1))
def test_a_wrong_version_is_refused(place: Callable[[bytes], Path], version: int) -> None:
    assume(version != VERSION)
    assert f"version {version}" in refusal(place(shard_bytes([1, 2], version=version)))


@given(tokens=TOKENS, count=st.integers(-(2**31), 2**31 - 1))
def test_a_wrong_count_is_refused(place: Callable[[bytes], Path], tokens: list[int], count: int) -> None:
    assume(count != len(tokens))
    assert str(count) in refusal(place(shard_bytes(tokens, count=count)))


@given(tokens=st.lists(st.integers(0, 127), min_size=1, max_size=20), kind=st.sampled_from("BIQ"))
def test_another_token_width_is_refused_and_named(
    place: Callable[[bytes], Path], tokens: list[int], kind: str
) -> None:
    message = refusal(place(shard_bytes(tokens, kind=kind)))
    assert f"{8 * struct.calcsize(kind)}-bit tokens" in message


def test_an_odd_number_of_bytes_is_refused(place: Callable[[bytes], Path]) -> None:
    message = refusal(place(shard_bytes([1, 2, 3]) + b"\0"))
    assert "6 bytes, 7 follow" in message
    assert "appended" in message


def test_nothing_there_is_refused(tmp_path: Path) -> None:
    assert "no such file or folder" in refusal(tmp_path / "missing.bin")
    assert "no *.bin" in refusal(tmp_path)
    assert "matches no file" in refusal(tmp_path / "*.bin")


def test_the_damaged_file_among_several_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(shard_bytes([1]))
    (tmp_path / "b.bin").write_bytes(shard_bytes([1, 2])[:-1])
    with pytest.raises(RuleError, match=r"b\.bin: 2 tokens take 4 bytes, 3 follow"):
        open_shards(str(tmp_path))


@given(tokens=TOKENS, vocab=st.integers(1, 65535))
def test_a_token_outside_the_vocabulary_is_refused_with_its_position(
    place: Callable[[bytes], Path], tokens: list[int], vocab: int
) -> None:
    path = place(shard_bytes(tokens))
    seq_len = len(tokens) - 1
    assume(seq_len >= 1)
    source = StreamRows(open_shards(str(path)), vocab=vocab, seq_len=seq_len, seed=0)
    outside = [i for i, token in enumerate(tokens) if token >= vocab]
    if not outside:
        assert source.rows(0, 0, 1)["tokens"].tolist() == [tokens[:-1]]
        return
    with pytest.raises(RuleError) as caught:
        source.rows(0, 0, 1)
    first = outside[0]
    assert caught.value.numbers == f"{path}, token {first}: token {tokens[first]}, vocabulary {vocab}"


@given(tokens=TOKENS, longer=st.integers(0, 100))
def test_a_sequence_longer_than_the_text_is_refused(
    place: Callable[[bytes], Path], tokens: list[int], longer: int
) -> None:
    stream = open_shards(str(place(shard_bytes(tokens))))
    seq_len = len(tokens) + longer
    with pytest.raises(RuleError, match=f"{len(tokens)} tokens, sequence length {seq_len} "):
        StreamRows(stream, vocab=65536, seq_len=seq_len, seed=0)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="/proc tells what was read")
def test_a_shard_of_more_than_2_gb_opens_without_being_read(tmp_path: Path) -> None:
    path, count = tmp_path / "big.bin", 1_200_000_000
    with path.open("wb") as file:
        file.write(shard_bytes([], count=count))
        file.seek(HEADER_BYTES + 2 * count - 2)
        file.write(struct.pack("<H", 4242))
    assert path.stat().st_size > 2**31

    before = bytes_touched()
    shards = open_shards(str(path))
    source = StreamRows(shards, vocab=50304, seq_len=1024, seed=0)
    assert shards.read(count - 2, count).tolist() == [0, 4242]
    assert not source.rows(0, 0, 4)["tokens"].any()
    assert bytes_touched() - before < 10_000_000


def bytes_touched() -> int:
    """Bytes that this process has read so far, and file pages that it has mapped in."""
    read = int(Path("/proc/self/io").read_text().split()[1])
    mapped = re.search(r"RssFile:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert mapped is not None
    return read + 1024 * int(mapped.group(1))


def test_the_writer_refuses_what_no_shard_can_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    for part, says in (
        (np.array([1, 65536]), "token 3 is 65536"),
        (np.array([1, -1]), "token 3 is -1"),
        (np.array([0.5]), "dtype float64"),
    ):
        with pytest.raises(RuleError, match=says):
            write_shard(path, [np.array([7, 7]), part])
    with pytest.raises(RuleError, match=f"1 to {MAX_TOKENS} tokens"):
        write_shard(path, [])
    assert os.listdir(tmp_path) == []


def test_prepare_makes_a_shard_of_bytes_and_never_overwrites(tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out" / "text.bin"
    text.write_bytes("Gr\u00fc\u00dfe".encode())
    assert prepare(str(text), out) == 7
    assert open_shards(str(out)).read(0, 7).tolist() == list("Gr\u00fc\u00dfe".encode())
    before = out.read_bytes()
    with pytest.raises(RuleError, match=r"text\.bin exists"):
        prepare(str(text), out)
    assert out.read_bytes() == before
