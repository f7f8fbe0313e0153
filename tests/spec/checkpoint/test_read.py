"""Opening, finding and fitting: lazily, the checkpoint that is meant, and never another run's."""

import dataclasses
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spec.checkpoint import Saver, checkpoints_in, find_checkpoint, open_checkpoint, read
from spec.errors import RuleError
from spec.presets import run_spec
from spec.run import Problem
from spec.schedule import Schedule
from tests.spec.checkpoint import small


def test_tensors_are_read_one_by_one(tmp_path: Path) -> None:
    size = 1 << 20
    saver = Saver(tmp_path, shard_bytes=4 * size)
    tensors = {f"param/{i}": np.full(size, i, np.uint8) for i in range(16)}
    saver.save(small.SPEC, small.position(1), tensors, {})
    saver.close()
    checkpoint = open_checkpoint(tmp_path / "step000001")
    tracemalloc.start()
    try:
        for i in range(16):
            assert checkpoint.tensors[f"param/{i}"][0] == i
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * size, "one tensor, and its last bytes while it is replaced"


def test_a_shard_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening reads the header: once a tensor would make loading quadratic in their number."""
    small.write(tmp_path, 1)
    opened = []

    class Counted(read.TensorFile):
        def __init__(self, path: Path) -> None:
            opened.append(path)
            super().__init__(path)

    monkeypatch.setattr(read, "TensorFile", Counted)
    checkpoint = open_checkpoint(tmp_path / "step000001")
    assert small.same(checkpoint, 1)
    assert len(opened) == len(checkpoint.manifest.shards) > 3


def test_names_are_known_without_reading(tmp_path: Path) -> None:
    small.write(tmp_path, 1)
    checkpoint = open_checkpoint(tmp_path / "step000001")
    for shard in checkpoint.manifest.shards:
        (checkpoint.path / shard).unlink()
    assert "m/empty" in checkpoint.tensors
    assert "m/other" not in checkpoint.tensors
    assert len(checkpoint.tensors) == len(small.tensors(1))
    with pytest.raises(KeyError):
        checkpoint.tensors["m/other"]
    with pytest.raises(RuleError, match=r"tensors-00001-of-\d+\.safetensors.*; reading param/float64"):
        checkpoint.tensors["param/float64.weight"]


def test_a_damaged_one_names_the_file_and_the_one_before(tmp_path: Path) -> None:
    small.write(tmp_path, 1, 2, 3)
    newest = find_checkpoint(tmp_path)
    shard = sorted(newest.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(RuleError) as caught:
        open_checkpoint(newest)
    assert str(shard) in caught.value.numbers
    assert str(tmp_path / "step000002") in caught.value.mend
    shard.unlink()
    with pytest.raises(RuleError, match=f"{shard.name}: No such file"):
        open_checkpoint(newest)
    with pytest.raises(RuleError, match=r"checkpoint\.json: No such file"):
        open_checkpoint(tmp_path)


def test_what_is_meant_by_a_path(tmp_path: Path) -> None:
    passes = tmp_path / "passes"
    small.write(passes / "001_torch_run" / "checkpoints", 10, 20)
    small.write(passes / "002_jax_run" / "checkpoints", 10, 15)
    (passes / "003_torch_time").mkdir()
    torch, jax = (passes / name / "checkpoints" for name in ("001_torch_run", "002_jax_run"))
    assert find_checkpoint(tmp_path) == torch / "step000020"
    assert find_checkpoint(tmp_path, "torch") == torch / "step000020"
    assert find_checkpoint(str(tmp_path), "jax") == jax / "step000015"
    assert find_checkpoint(jax.parent) == find_checkpoint(jax, "torch") == jax / "step000015"
    assert find_checkpoint(torch / "step000010", "jax") == torch / "step000010"
    shutil.rmtree(jax)
    assert find_checkpoint(tmp_path, "jax") == torch / "step000020", "the other side's, for want of its own"
    with pytest.raises(RuleError, match="003_torch_time"):
        find_checkpoint(passes / "003_torch_time")
    with pytest.raises(RuleError, match="nowhere"):
        find_checkpoint(tmp_path / "nowhere")


def test_half_written_ones_are_not_seen(tmp_path: Path) -> None:
    small.write(tmp_path, 4)
    shutil.copytree(tmp_path / "step000004", tmp_path / ".step000009.tmp")
    assert list(checkpoints_in(tmp_path)) == [4]
    assert find_checkpoint(tmp_path) == tmp_path / "step000004"
    Saver(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == ["step000004"]


def test_steps_order_as_numbers(tmp_path: Path) -> None:
    small.write(tmp_path, 999_999, 1_000_000)
    assert find_checkpoint(tmp_path).name == "step1000000"


def _changed(**changes: Any) -> Problem:
    return dataclasses.replace(small.SPEC.problem, **changes)


@pytest.mark.parametrize(
    ("problem", "says", "mend"),
    [
        (_changed(precision="f64"), "precision was 'strict', is 'f64'", "--precision strict"),
        (_changed(global_batch=16), "global_batch was 8, is 16", "--global-batch 8"),
        (_changed(micro_batches=2), "micro_batches was 1, is 2", "--micro-batches 1"),
        (_changed(seed_weights=5, seed_data=6), r"seed_weights was 0, is 5 \(and 1 more\)", "--seed 0"),
        (
            _changed(optimizer=dataclasses.replace(small.SPEC.problem.optimizer, beta2=0.5)),
            "optimizer.beta2 was 0.95, is 0.5",
            "toy-mlp",
        ),
        (
            _changed(schedule=Schedule(kind="cosine", peak_lr=1e-3, decay_steps=9)),
            "schedule.kind was 'constant', is 'cosine'",
            "--steps 1000",
        ),
        (run_spec("tiny").problem, "workload was 'mlp', is 'gpt'", "preset it was made with, toy-mlp"),
        (_changed(steps=6), "7 steps done of 6", "more --steps"),
    ],
)
def test_another_problem_is_refused(tmp_path: Path, problem: Problem, says: str, mend: str) -> None:
    small.write(tmp_path, 7)
    with pytest.raises(RuleError, match=says) as caught:
        open_checkpoint(tmp_path / "step000007").check_fits(problem)
    assert mend in caught.value.mend


def test_the_length_of_a_run_and_the_place_of_its_data_are_free(tmp_path: Path) -> None:
    small.write(tmp_path, 7)
    checkpoint = open_checkpoint(tmp_path / "step000007")
    for problem in (small.SPEC.problem, _changed(steps=7), _changed(steps=10**6)):
        checkpoint.check_fits(problem)
    moved = dataclasses.replace(small.SPEC.problem.data, path="elsewhere")
    checkpoint.check_fits(_changed(data=moved))
