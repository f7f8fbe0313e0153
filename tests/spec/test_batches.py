"""Rows depend on seed, step and row alone; ranks partition them; digests add up."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import philox
from spec.data.batches import (
    Batch,
    FolderSource,
    RowSource,
    add_digests,
    batch_digest,
    micro_slices,
    open_source,
    rank_rows,
    row_digest_u64,
    write_batches,
)
from spec.data.folder import batch_file
from spec.data.shards import write_shard
from spec.data.synthetic import neighbour_products
from spec.errors import RuleError
from spec.presets import run_spec
from spec.run import DataSpec, Problem
from spec.weights import load_tensors, save_tensors
from spec.workloads.gpt import IGNORE_LABEL, GptSizes
from spec.workloads.mlp import MlpSizes

GLOBAL_BATCH = 12
GPT = GptSizes(vocab=256, seq_len=16, num_layers=1, d_model=8, num_heads=1)
MLP = MlpSizes(d_in=5, d_hidden=4, d_out=7)
KINDS = ["text", "text ragged", "shards", "synthetic", "synthetic ragged", "mlp", "folder"]


def problem(kind: str, path: str | None = None, *, ragged: bool = False, seed: int = 1) -> Problem:
    """A small problem that reads data of that kind; `mlp` is the workload with synthetic rows."""
    name, sizes = ("toy-mlp", MLP) if kind == "mlp" else ("tiny", GPT)
    data = DataSpec(kind="synthetic" if kind == "mlp" else kind, path=path, ragged=ragged)
    base = run_spec(name, devices=1, global_batch=GLOBAL_BATCH).problem
    return dataclasses.replace(base, sizes=sizes, data=data, seed_data=seed)


@pytest.fixture(scope="module", params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RowSource:
    """One source of each kind."""
    kind, _, ragged = request.param.partition(" ")
    folder = tmp_path_factory.mktemp("data")
    if kind == "shards":
        for number in range(3):
            write_shard(folder / f"{number}.bin", [philox.uniform_below(number, 2000, GPT.vocab)])
    if kind == "folder":
        write_batches(folder, open_source(problem("text")), 4, GLOBAL_BATCH)
    path = str(folder) if kind in ("shards", "folder") else None
    return open_source(problem(kind, path, ragged=bool(ragged)))


def same(a: Batch, b: Batch) -> bool:
    """Whether two batches are equal to the last bit, names and dtypes included."""
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and np.array_equal(a[name], b[name]) for name in a
    )


@given(step=st.integers(0, 3), rows=st.lists(st.integers(0, GLOBAL_BATCH), min_size=2, max_size=2))
def test_any_rows_are_the_same_as_within_the_whole_batch(
    source: RowSource, step: int, rows: list[int]
) -> None:
    start, stop = sorted(rows)
    whole = source.rows(step, 0, GLOBAL_BATCH)
    assert same(source.rows(step, start, stop), {name: array[start:stop] for name, array in whole.items()})


def test_rows_do_not_depend_on_the_order_of_calls(source: RowSource) -> None:
    forwards = [source.rows(step, 0, GLOBAL_BATCH) for step in range(3)]
    backwards = [source.rows(step, 0, GLOBAL_BATCH) for step in (2, 1, 0)][::-1]
    assert all(same(a, b) for a, b in zip(forwards, backwards, strict=True))


def test_rows_and_steps_differ(source: RowSource) -> None:
    rows = [
        tuple(array[i].tobytes() for array in source.rows(step, 0, GLOBAL_BATCH).values())
        for step in range(2)
        for i in range(GLOBAL_BATCH)
    ]
    assert len(set(rows)) == len(rows)


def test_a_batch_is_what_the_batch_spec_says(source: RowSource) -> None:
    for num_rows in (1, 5):
        batch = source.rows(0, 2, 2 + num_rows)
        assert {name: (array.shape, array.dtype) for name, array in batch.items()} == source.batch_spec(
            num_rows
        )
        assert all(array.flags.c_contiguous for array in batch.values())


def test_a_description_is_json_and_names_the_kind(source: RowSource) -> None:
    assert json.loads(json.dumps(source.describe()))["kind"] in ("text", "shards", "synthetic", "folder")


@given(world_size=st.integers(1, 20), global_batch=st.integers(1, 100))
def test_ranks_partition_the_batch(world_size: int, global_batch: int) -> None:
    slices = [rank_rows(global_batch, rank, world_size) for rank in range(world_size)]
    assert [row for start, stop in slices for row in range(start, stop)] == list(range(global_batch))
    if global_batch % world_size == 0:
        assert {stop - start for start, stop in slices} == {global_batch // world_size}


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 12])
def test_digests_of_the_ranks_add_up_at_any_world_size(source: RowSource, world_size: int) -> None:
    whole = batch_digest(source.rows(1, 0, GLOBAL_BATCH), 0)
    parts = []
    for rank in range(world_size):
        start, stop = rank_rows(GLOBAL_BATCH, rank, world_size)
        parts.append(batch_digest(source.rows(1, start, stop), start))
    assert add_digests(parts) == whole
    assert add_digests(reversed(parts)) == whole


def test_a_row_digest_is_the_documented_hash() -> None:
    row = {"b": np.array([1, 2], np.int32), "a": np.float32(0.5)}
    text = (7).to_bytes(8, "little") + b"a float32 () " + np.float32(0.5).tobytes()
    text += b"b int32 (2,) " + np.array([1, 2], np.int32).tobytes()
    expected = hashlib.blake2b(text, digest_size=8, person=b"parity-row").digest()
    assert row_digest_u64(row, 7) == int.from_bytes(expected, "little")
    batch = {"b": np.array([[1, 2]], np.int32), "a": np.array([0.5], np.float32)}
    assert batch_digest(batch, 7) == f"{int.from_bytes(expected, 'little'):016x}"


def test_a_digest_sees_every_bit_and_where_it_stands() -> None:
    batch = {"x": np.arange(6, dtype=np.float32).reshape(3, 2)}
    seen = {batch_digest(batch, 0), batch_digest(batch, 1)}
    seen.add(batch_digest({"x": batch["x"][[1, 0, 2]]}, 0))
    seen.add(batch_digest({"y": batch["x"]}, 0))
    seen.add(batch_digest({"x": batch["x"].view(np.int32)}, 0))
    seen.add(batch_digest({"x": batch["x"].reshape(3, 1, 2)}, 0))
    changed = batch["x"].copy()
    changed.view(np.int32)[2, 1] ^= 1
    seen.add(batch_digest({"x": changed}, 0))
    assert len(seen) == 7


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 6])
def test_micro_batches_are_contiguous_slices_in_order(micro_batches: int) -> None:
    rows = np.arange(6)
    parts = [rows[s] for s in micro_slices(6, micro_batches)]
    assert {len(part) for part in parts} == {6 // micro_batches}
    assert np.concatenate(parts).tolist() == rows.tolist()


def test_labels_stand_one_to_the_right_in_the_text() -> None:
    source = open_source(problem("text"))
    batch = source.rows(0, 0, GLOBAL_BATCH)
    assert np.array_equal(batch["tokens"][:, 1:], batch["labels"][:, :-1])


@pytest.mark.parametrize("kind", ["text", "synthetic"])
def test_ragged_rows_keep_the_tokens_and_ignore_labels_beyond_their_length(kind: str) -> None:
    full = open_source(problem(kind)).rows(0, 0, 200)
    ragged = open_source(problem(kind, ragged=True)).rows(0, 0, 200)
    assert np.array_equal(full["tokens"], ragged["tokens"])
    kept = ragged["labels"] != IGNORE_LABEL
    assert np.array_equal(ragged["labels"][kept], full["labels"][kept])
    lengths = kept.sum(axis=1)
    assert np.array_equal(kept, np.arange(GPT.seq_len) < lengths[:, None])
    # 200 draws miss one of 9 lengths with a chance of 9 * (8/9)**200 = 5e-10.
    assert set(lengths.tolist()) == set(range(GPT.seq_len // 2, GPT.seq_len + 1))


def test_rows_start_anywhere_in_the_text_to_its_very_end(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(bytes(range(GPT.seq_len + 3)))
    batch = open_source(problem("text", str(path))).rows(0, 0, 100)
    assert set(batch["tokens"][:, 0].tolist()) == {0, 1, 2}
    assert batch["labels"].max() == GPT.seq_len + 2


def test_another_seed_gives_other_rows() -> None:
    first, second = (open_source(problem("text", seed=seed)).rows(0, 0, 4) for seed in (1, 2))
    assert not np.array_equal(first["tokens"], second["tokens"])


def test_synthetic_tokens_cover_the_vocabulary() -> None:
    tokens = open_source(problem("synthetic")).rows(0, 0, 500)["tokens"]
    # 8000 draws miss one of 256 values with a chance of 256 * (255/256)**8000 = 6e-12.
    assert set(tokens.ravel().tolist()) == set(range(GPT.vocab))


@pytest.mark.parametrize("d_out", [1, 4, 5, 7, 12])
def test_mlp_targets_are_products_of_neighbours_rounded_once(d_out: int) -> None:
    x = open_source(problem("mlp")).rows(0, 0, 3)["x"]
    y = neighbour_products(x, d_out)
    assert y.shape == (3, d_out)
    for row in range(3):
        for j in range(d_out):
            exact = float(x[row, j % 5]) * float(x[row, (j + 1) % 5])
            assert y[row, j] == np.float32(exact)


@pytest.mark.parametrize(
    ("kind", "ragged", "pinned"),
    [("synthetic", True, "9eaa233badfc61e8"), ("mlp", False, "cc9197fd3c3789d8")],
)
def test_pinned_digests(kind: str, ragged: bool, pinned: str) -> None:
    """Every run ever recorded was fed rows like these: a change makes all of them incomparable."""
    source = open_source(problem(kind, ragged=ragged))
    assert batch_digest(source.rows(1, 2, 5), first_row=2) == pinned


def test_ragged_mlp_rows_are_refused() -> None:
    with pytest.raises(RuleError, match="Only rows of tokens can be ragged"):
        open_source(problem("mlp", ragged=True))


def test_written_batches_are_read_back_bit_for_bit(tmp_path: Path) -> None:
    for kind in ("text", "mlp"):
        made = open_source(problem(kind))
        write_batches(tmp_path / kind, made, 3, GLOBAL_BATCH)
        read = open_source(problem(kind), batches=tmp_path / kind)
        assert all(same(made.rows(s, 3, 9), read.rows(s, 3, 9)) for s in range(3))
        assert made.batch_spec(4) == read.batch_spec(4)


def test_a_folder_is_described_by_the_hash_of_its_files(tmp_path: Path) -> None:
    write_batches(tmp_path, open_source(problem("text")), 2, GLOBAL_BATCH)
    expected = hashlib.sha256(b"".join(batch_file(tmp_path, step).read_bytes() for step in range(2)))
    assert FolderSource(tmp_path).describe() == {
        "kind": "folder",
        "path": str(tmp_path),
        "sha256": expected.hexdigest(),
        "steps": 2,
    }


def test_batches_can_be_read_out_of_the_tensors_of_a_pass(tmp_path: Path) -> None:
    labels = np.full((2, 16), IGNORE_LABEL, np.int32)
    save_tensors(batch_file(tmp_path, 0), {"param/w": np.ones(3), "batch/labels": labels})
    assert same(FolderSource(tmp_path, vocab=4).rows(0, 0, 2), {"labels": labels})


def test_folders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="no such folder"):
        FolderSource(tmp_path / "missing")
    with pytest.raises(RuleError, match=r"no stepNNNNNN\.safetensors"):
        FolderSource(tmp_path)
    write_batches(tmp_path, open_source(problem("text")), 2, GLOBAL_BATCH)
    source = FolderSource(tmp_path, vocab=256)
    with pytest.raises(RuleError, match=r"no step000002\.safetensors among 2 steps"):
        source.rows(2, 0, 1)
    with pytest.raises(RuleError, match="has 12 rows, row 12 was asked for"):
        source.rows(0, 0, 13)

    wide = {name: array.astype(np.int64) for name, array in load_tensors(batch_file(tmp_path, 1)).items()}
    save_tensors(batch_file(tmp_path, 1), wide)
    with pytest.raises(RuleError, match=r"labels is .*int64.* in step000000.*int32"):
        source.rows(1, 0, 1)
    save_tensors(batch_file(tmp_path, 1), {"param/w": np.ones(3)})
    with pytest.raises(RuleError, match="arrays under batch/"):
        source.rows(1, 0, 1)


@pytest.mark.parametrize(
    ("name", "value"), [("tokens", 300), ("tokens", -1), ("labels", 300), ("labels", -2)]
)
def test_a_written_token_outside_the_vocabulary_is_refused(tmp_path: Path, name: str, value: int) -> None:
    write_batches(tmp_path, open_source(problem("text")), 1, GLOBAL_BATCH)
    tensors = load_tensors(batch_file(tmp_path, 0))
    tensors[f"batch/{name}"][5, 3] = value
    save_tensors(batch_file(tmp_path, 0), tensors)
    source = open_source(problem("folder", str(tmp_path)))
    source.rows(0, 0, 5)
    with pytest.raises(RuleError, match=rf"{name}\[5, 3\] is {value}, vocabulary 256"):
        source.rows(0, 4, 8)
