"""What a SAME would not have seen is told from the records, and only there."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity.judge import adequacy
from parity.judge.align import Measured
from parity.judge.verdict import found_nothing, judge
from spec.data.folder import batch_file
from spec.run import AdamW, DataSpec, Problem, RunSpec
from spec.schedule import Schedule
from spec.weights import save_tensors
from spec.workloads.pair import PairFiles, PairSizes
from tests.parity.pass_writer import make_content, small_job, small_spec, write_pass

FULL = 8
"""Positions of the small model; it is given one row a step."""


def told(folder: Path, spec: RunSpec, tokens: int | None = None) -> list[str]:
    """What is said of a written pass; rows are ragged unless `tokens` says how many labels a step has."""
    job = replace(small_job(folder / "torch", "torch", spec), observe=())
    content = make_content(job)
    for lines in content.steps:
        for step, line in enumerate(lines):
            line["tokens"] = 5 + step if tokens is None else tokens
    return adequacy.would_not_see(Measured("torch", content.write()))


def changed(**changes: object) -> RunSpec:
    spec = small_spec(world_size=2)
    problem: Problem = replace(spec.problem, **changes)  # type: ignore[arg-type]
    return replace(spec, problem=problem)


def test_a_run_that_brings_out_everything_says_nothing(tmp_path: Path) -> None:
    sizes = replace(small_spec().problem.sizes, seq_len=adequacy.ENOUGH_POSITIONS)  # type: ignore[type-var]
    assert told(tmp_path, changed(sizes=sizes, precision="f64")) == []


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    quiet = AdamW(max_norm=3.0, weight_decay=0.0)
    constant = Schedule(kind="constant", peak_lr=1e-3)
    spec = changed(optimizer=quiet, schedule=constant, micro_batches=1)
    spec = replace(spec, execution=replace(spec.execution, world_size=1))
    assert told(tmp_path, spec, tokens=FULL * spec.problem.global_batch) == [
        "clipping (no norm above 3, 2.5 at most)",
        "schedule (one learning rate)",
        "weight decay (it is 0)",
        f"padding ({FULL * spec.problem.global_batch} labels in every step)",
        f"positions (rows of {FULL})",
        "accumulation (one micro-batch)",
        "reduction (one process)",
        "TF32 (a CPU has no TF32, which a GPU may take for products of float32: "
        "jax_default_matmul_precision, torch.backends.cuda.matmul)",
    ]
    assert "clipping (none is asked for)" in told(tmp_path / "b", changed(optimizer=AdamW(max_norm=None)))


def test_rows_of_a_pair_are_looked_up_in_its_batches(tmp_path: Path) -> None:
    ids, image = np.zeros((2, 12), np.int32), np.zeros((2, 3, 9), np.float32)
    save_tensors(batch_file(tmp_path, 0), {"batch/tokens": ids, "batch/image": image})
    assert list(adequacy._positions(_pair(tmp_path))) == ["positions (rows of 12)"]
    save_tensors(batch_file(tmp_path, 0), {"batch/image": image, "batch/there": ids.astype(bool)})
    assert list(adequacy._positions(_pair(tmp_path))) == []
    assert list(adequacy._positions(_pair(tmp_path / "gone"))) == []


def test_rows_of_one_are_no_pass_for_a_model_that_works_between_positions(tmp_path: Path) -> None:
    sizes = replace(small_spec().problem.sizes, seq_len=1)  # type: ignore[type-var]
    a, b = (write_pass(tmp_path / side, side, changed(sizes=sizes)) for side in ("torch", "jax"))
    found = judge(Measured("torch", a), Measured("jax", b))
    assert (found.verdict, found.first_divergence) == ("INCONCLUSIVE", None)
    assert "attention over one position" in found.reasons[0]
    assert "positions (rows of 1)" in found.would_not_see and found_nothing(found)


@pytest.mark.parametrize(
    ("rows", "over_one"),
    [
        (np.zeros((2, 1), np.int32), ("softmax",)),
        (np.zeros((2, 1, 4), np.float32), ("lstm",)),
        (np.zeros(2, np.int32), ("conv1d", "gru")),
        (np.zeros((2, 1), np.int32), ()),
    ],
)
def test_a_pair_on_one_position_is_a_pass_where_nothing_works_between_positions(
    tmp_path: Path, rows: np.ndarray, over_one: tuple[str, ...]
) -> None:
    save_tensors(batch_file(tmp_path, 0), {"batch/rows": rows})
    files = PairFiles(torch="torch_side.py", jax="jax_side.py", over_one=over_one)
    spec = replace(small_spec(), problem=_pair(tmp_path), pair=files)
    job = replace(small_job(tmp_path / "torch", "torch"), spec=spec)
    job.write()
    found = adequacy.too_little(Measured("torch", tmp_path / "torch"))
    assert (f"({', '.join(over_one)} over one position)" in found) == bool(over_one) == bool(found)


def _pair(batches: Path) -> Problem:
    data = DataSpec(kind="folder", path=str(batches))
    return replace(small_spec().problem, workload="pair", sizes=PairSizes(), data=data)


def test_a_same_says_it_and_a_difference_does_not(tmp_path: Path) -> None:
    a, b = (make_content(small_job(tmp_path / side, side)) for side in ("torch", "jax"))
    sides = [Measured(content.job.side, content.write()) for content in (a, b)]
    assert "positions (rows of 8)" in judge(*sides).would_not_see
    b.set_value(1, "loss", 9.0)
    b.write()
    found = judge(Measured("torch", sides[0].folder), Measured("jax", sides[1].folder))
    assert (found.verdict, found.would_not_see) == ("DIFFERENT", [])
