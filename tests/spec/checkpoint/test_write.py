"""Saving: in the background, whole or not there, as many as are kept, and a full disk costs nothing old."""

import errno
import json
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from spec.checkpoint import Position, Saver, checkpoints_in, open_checkpoint, write
from spec.errors import RuleError
from spec.weights import save_tensors
from tests.spec.checkpoint import small


def test_everything_comes_back_to_the_bit(tmp_path: Path) -> None:
    small.write(tmp_path, 7)
    assert small.same(open_checkpoint(tmp_path / "step000007"), 7)


def test_shards_are_plain_safetensors_of_bounded_size(tmp_path: Path) -> None:
    small.write(tmp_path, 7)
    shards = sorted((tmp_path / "step000007").glob("*.safetensors"))
    assert len(shards) > 3
    assert shards[-1].name == f"tensors-{len(shards):05d}-of-{len(shards):05d}.safetensors"
    by_shard = [load_file(shard) for shard in shards]
    assert all(sum(a.nbytes for a in tensors.values()) <= small.SHARD_BYTES for tensors in by_shard)
    found = {name: array for tensors in by_shard for name, array in tensors.items()}
    assert found.keys() == small.tensors(7).keys()
    assert all(small.identical(found[name], array) for name, array in small.tensors(7).items())


def test_a_tensor_above_the_size_of_a_shard_has_one_to_itself(tmp_path: Path) -> None:
    saver = Saver(tmp_path, shard_bytes=100)
    arrays = {f"m/{n}": np.zeros(n, np.uint8) for n in (40, 50, 400, 10)}
    saver.save(small.SPEC, small.position(1), arrays, {})
    saver.close()
    entries = open_checkpoint(tmp_path / "step000001").manifest.tensors
    assert [entry.shard[8:13] for entry in entries.values()] == ["00001", "00001", "00002", "00003"]


def test_strides_do_not_matter(tmp_path: Path) -> None:
    array, saver = np.arange(12.0).reshape(3, 4), Saver(tmp_path)
    saver.save(small.SPEC, small.position(1), {"param/t": array.T, "param/s": array[:, ::2]}, {})
    saver.close()
    back = open_checkpoint(tmp_path / "step000001").tensors
    assert small.identical(back["param/t"], array.T)
    assert small.identical(back["param/s"], array[:, ::2])


@pytest.mark.parametrize(("keep", "first"), [(None, 1), (1, 6), (2, 5), (5, 2), (6, 1), (7, 1), (100, 1)])
def test_the_newest_stay(tmp_path: Path, keep: int | None, first: int) -> None:
    small.write(tmp_path, *range(1, 7), keep=keep)
    assert list(checkpoints_in(tmp_path)) == list(range(first, 7))
    assert len(os.listdir(tmp_path)) == 7 - first


def test_later_ones_are_not_pruned(tmp_path: Path) -> None:
    small.write(tmp_path, 10, 20)
    small.write(tmp_path, 15, keep=1)
    assert list(checkpoints_in(tmp_path)) == [15, 20]


def test_at_least_one_is_kept(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="keep = 0"):
        Saver(tmp_path, keep=0)


def test_saving_returns_before_the_write_and_waits_for_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, started = threading.Event(), threading.Event()

    def slow(path: Path, tensors: Any) -> None:
        started.set()
        assert go.wait(60)
        save_tensors(path, tensors)

    monkeypatch.setattr(write, "save_tensors", slow)
    saver = Saver(tmp_path)
    saver.save(small.SPEC, small.position(1), small.tensors(1), small.WRITTEN_BY)
    assert started.wait(60)
    assert not (tmp_path / "step000001").exists()
    threading.Timer(0.2, go.set).start()
    saver.save(small.SPEC, small.position(2), small.tensors(2), small.WRITTEN_BY)
    assert small.same(open_checkpoint(tmp_path / "step000001"), 1), "whole before the next begins"
    assert saver.wait() == tmp_path / "step000002"
    saver.close()


def test_what_is_given_may_change_afterwards(tmp_path: Path) -> None:
    saver, tensors, written_by = Saver(tmp_path), small.tensors(1), {"side": "jax", "plan": [1, 2]}
    saver.save(small.SPEC, small.position(1), tensors, written_by)
    tensors.clear()
    written_by["plan"].append(3)  # type: ignore[union-attr]
    saver.close()
    opened = open_checkpoint(tmp_path / "step000001")
    assert opened.written_by == {"side": "jax", "plan": [1, 2]}
    assert len(opened.tensors) == len(small.tensors(1))


def test_nothing_is_written_over(tmp_path: Path) -> None:
    small.write(tmp_path, 3)
    with pytest.raises(RuleError, match="not written over"):
        small.write(tmp_path, 3)
    assert small.same(open_checkpoint(tmp_path / "step000003"), 3)


def test_what_cannot_be_saved_is_refused_at_once(tmp_path: Path) -> None:
    saver = Saver(tmp_path)
    for bad in (np.zeros(2, np.complex64), np.zeros(2, ">f4"), np.zeros(2, "M8[s]"), np.array(["text"])):
        with pytest.raises(RuleError, match="buffer/odd"):
            saver.save(small.SPEC, small.position(1), {"buffer/odd": bad}, {})
    with pytest.raises(RuleError, match="step = -1"):
        Position(step=-1, applied=0, skipped=0)
    saver.close()
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RuleError, match="file/checkpoints"):
        Saver(tmp_path / "file" / "checkpoints")


def _limit_file_size(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _no_space_at(number: int) -> Callable[[pytest.MonkeyPatch], Callable[[], None]]:
    """A disk on which the data of call `number` of fsync no longer fit, as delayed allocation tells it."""

    def fill(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
        calls, fsync = iter(range(100)), os.fsync

        def full(handle: int) -> None:
            if next(calls) == number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(handle)

        monkeypatch.setattr(os, "fsync", full)
        return lambda: monkeypatch.setattr(os, "fsync", fsync)

    return fill


@pytest.mark.parametrize("fill", [_limit_file_size, *(_no_space_at(number) for number in range(7))])
def test_a_full_disk_is_told_once_and_nothing_saved_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: Callable[[pytest.MonkeyPatch], Callable[[], None]]
) -> None:
    saver = Saver(tmp_path, keep=1, shard_bytes=small.SHARD_BYTES)
    small.save(saver, 1)
    empty = fill(monkeypatch)
    try:
        saver.save(small.SPEC, small.position(2), small.tensors(2), small.WRITTEN_BY)
        with pytest.raises(RuleError, match=r"step000002 \([\d,]+ bytes\): .*(too large|No space)") as caught:
            saver.wait()
    finally:
        empty()
    assert "the checkpoints before it are whole" in caught.value.mend
    assert os.listdir(tmp_path) == ["step000001"]
    assert saver.wait() == tmp_path / "step000001"
    assert small.same(open_checkpoint(tmp_path / "step000001"), 1)
    small.save(saver, 3)
    saver.close()
    assert os.listdir(tmp_path) == ["step000003"]
    assert small.same(open_checkpoint(tmp_path / "step000003"), 3)


def test_the_manifest_reads_without_this_code(tmp_path: Path) -> None:
    small.write(tmp_path, 3)
    plain = json.loads((tmp_path / "step000003" / "checkpoint.json").read_text())
    assert (plain["version"], plain["position"]["step"], plain["spec"]["name"]) == (1, 3, "toy-mlp")
    assert plain["problem_sha256"] == small.SPEC.problem.sha256()
