"""Weights by (seed, name); tensor files that come back to the bit or say what is wrong with them."""

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec.errors import RuleError
from spec.params import ParamSpec
from spec.presets import run_spec
from spec.weights import (
    TensorFile,
    init_parameters,
    load_tensors,
    save_tensors,
    state_digest,
    tensor_sha256,
)

TABLE = run_spec("tiny").problem.parameter_table()


def test_every_parameter_gets_its_shape_and_its_kind_of_value() -> None:
    weights = init_parameters(TABLE, seed=0)
    assert list(weights) == [param.name for param in TABLE]
    for param in TABLE:
        value = weights[param.name]
        assert (value.dtype, value.shape) == (np.float32, param.shape)
        if param.init == "normal":
            # 5 standard errors of a standard deviation.
            assert abs(value.std() / param.init_std - 1) < 5 / (2 * param.size) ** 0.5
        else:
            assert (value == {"zeros": 0, "ones": 1}[param.init]).all()


def test_a_weight_depends_on_seed_and_name_alone() -> None:
    weights = init_parameters(TABLE, seed=3)
    for param in reversed(TABLE):
        assert np.array_equal(init_parameters([param], seed=3)[param.name], weights[param.name])
    normal = [param for param in TABLE if param.init == "normal"]
    other = init_parameters(normal, seed=4)
    values = [*(weights[param.name] for param in normal), *other.values()]
    assert len({value[0, :8].tobytes() for value in values}) == 2 * len(normal)


def test_hashes_see_every_bit_dtype_shape_and_name() -> None:
    zero = np.zeros((2, 3), np.float32)
    bits = zero.copy()
    bits.view(np.uint32)[1, 2] = 1
    arrays = [zero, bits, -zero, zero.reshape(3, 2), zero.view(np.int32)]
    assert len({tensor_sha256(array) for array in arrays}) == len(arrays)
    assert tensor_sha256(zero.T) == tensor_sha256(np.zeros((3, 2), np.float32))
    assert state_digest({"a": zero, "b": bits}) == state_digest({"b": bits, "a": zero})
    assert state_digest({"a": zero, "b": bits}) != state_digest({"a": bits, "b": zero})


@given(
    shape=st.lists(st.integers(0, 4), max_size=3).map(tuple),
    dtype=st.sampled_from(["float64", "float32", "float16", "bfloat16", "int64", "int32", "uint16", "bool"]),
    data=st.data(),
)
def test_tensors_come_back_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, ...], dtype: str, data: st.DataObject
) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    raw = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8)
    array = (raw & 1 if dtype == "bool" else raw).view(kind).reshape(shape)
    path = tmp_path_factory.mktemp("tensors") / "a.safetensors"
    save_tensors(path, {"param/w": array})
    back = load_tensors(path)["param/w"]
    assert (back.dtype, back.shape, back.tobytes()) == (kind, shape, array.tobytes())


def test_strides_do_not_matter(tmp_path: Path) -> None:
    path, array = tmp_path / "a.safetensors", np.arange(12.0).reshape(3, 4)
    save_tensors(path, {"t": array.T, "every other": array[:, ::2], "scalar": np.asarray(2.5)})
    back = load_tensors(path)
    assert np.array_equal(back["t"], array.T)
    assert np.array_equal(back["every other"], array[:, ::2])
    assert back["scalar"].shape == ()


def test_named_tensors_alone_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, {name: np.full(2, i) for i, name in enumerate("abc")})
    assert list(load_tensors(path, ["c", "a"])) == ["c", "a"]
    with pytest.raises(RuleError, match=r"a\.safetensors: no d \(1 missing\), among 3 tensors"):
        load_tensors(path, ["a", "d"])


def test_missing_and_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(RuleError, match=r"a\.safetensors: no such file"):
        load_tensors(path)
    with pytest.raises(RuleError, match="not a file"):
        load_tensors(tmp_path)
    save_tensors(path, {"first": np.ones(4), "second": np.ones(4), "third": np.ones(4)})
    whole = path.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    damaged = {
        b"": "0 bytes, too few",
        whole[:7]: "7 bytes, too few",
        whole[: 8 + header // 2]: f"the header alone claims {header}",
        whole[: 8 + header + 32]: "cut off in tensor second, which ends at data byte 64 of 32",
        whole[:-1]: "cut off in tensor third, which ends at data byte 96 of 95",
        whole[:8] + b"x" * header + whole[8 + header :]: "not the JSON",
        whole[:8] + b"[]".ljust(header) + whole[8 + header :]: "not the JSON",
        whole + b"more": "a\\.safetensors: .",
    }
    for data, says in damaged.items():
        path.write_bytes(data)
        with pytest.raises(RuleError, match=says) as caught:
            load_tensors(path)
        assert str(path) in caught.value.numbers


def test_a_file_cut_while_it_is_open_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, {"first": np.ones(4), "second": np.ones(4)})
    file = TensorFile(path)
    os.truncate(path, path.stat().st_size - 40)
    with pytest.raises(RuleError, match="cut off in tensor first"):
        file.read("first")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, {"w": np.ones(3)})
    with pytest.raises(Exception, match=r"complex|dtype"):
        save_tensors(path, {"w": np.ones(3, np.clongdouble)})
    assert os.listdir(tmp_path) == ["a.safetensors"]
    assert load_tensors(path)["w"].tolist() == [1, 1, 1]


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RuleError, match=r"file/a\.safetensors: "):
        save_tensors(tmp_path / "file" / "a.safetensors", {"w": np.ones(3)})


def test_pinned_digest() -> None:
    """Every run ever recorded starts from weights like these: a change makes all of them incomparable."""
    table = [ParamSpec(name="w", shape=(2, 3), init="normal", init_std=0.5)]
    assert state_digest(init_parameters(table, seed=0)) == (
        "812ffed3585c2bf0278b33d954a87c11f8381eb73976bf732653ab8c44f29cfb"
    )
