"""What the gate refuses, and pass folders that are damaged or cut short."""

import dataclasses
from pathlib import Path

import pytest

from parity import same_work
from parity.judge.align import Measured
from parity.judge.verdict import judge
from spec.errors import RuleError
from spec.run import DataSpec, Execution
from spec.workloads.pair import PairFiles, PairSizes
from tests.parity.judging import judged
from tests.parity.pass_writer import Content, make_content, small_job, small_spec, write_pass


def test_another_problem_is_not_comparable_and_its_fields_are_named(tmp_path: Path) -> None:
    a = write_pass(tmp_path / "a", "torch", small_spec(steps=4))
    b = write_pass(tmp_path / "b", "jax", small_spec(steps=5))
    numerics = judge(Measured("a", a), Measured("b", b))
    assert numerics.verdict == "NOT_COMPARABLE"
    assert "problem.steps: a 4, b 5" in numerics.reasons


def test_two_pairs_whose_tensors_are_alike_are_two_problems(tmp_path: Path) -> None:
    """Of one pair, runs before and after an edit are one problem: that is what they are compared for."""
    files = PairFiles(torch="torch_side.py", jax="jax_side.py")

    def written(name: str, pair: str) -> Measured:
        spec = small_spec()
        data = DataSpec(kind="folder", path=str(tmp_path / name))
        sizes = PairSizes(pair=pair, parameters=spec.problem.parameter_table())
        problem = dataclasses.replace(spec.problem, workload="pair", sizes=sizes, data=data)
        spec = dataclasses.replace(spec, name=pair, problem=problem, pair=files)
        return Measured(name, write_pass(tmp_path / name, "torch", spec))

    first, other, again = written("a", "one"), written("b", "two"), written("c", "one")
    numerics = judge(first, other)
    assert numerics.verdict == "NOT_COMPARABLE"
    assert numerics.reasons == ["problem.sizes.pair: a 'one', b 'two'"]
    assert same_work.differences(first.job.spec, other.job.spec, any_steps=False) == ["pair one/two"]
    assert judge(first, again).verdict == "SAME"


def test_other_batches_are_not_comparable(tmp_path: Path) -> None:
    numerics = judged(tmp_path, lambda content: content.steps[0][2].update(batch_digest="00000000000000ff"))
    assert numerics.verdict == "NOT_COMPARABLE"
    assert "batch of step 2" in numerics.reasons[0]


def test_batches_are_compared_over_all_ranks_together(tmp_path: Path) -> None:
    """One process or two: the digests of the ranks add up to the same batch."""

    def one_rank(content: Content) -> None:
        for step, line in enumerate(content.steps[0]):
            line["batch_digest"] = f"{2 * 1000 * step + 1 + 2:016x}"
            line["tokens"] = 201

    two = make_content(small_job(tmp_path / "b", "jax", small_spec(world_size=2)))
    alone_spec = dataclasses.replace(two.job.spec, execution=Execution(world_size=1))
    alone = make_content(small_job(tmp_path / "a", "torch", alone_spec))
    one_rank(alone)
    assert judge(Measured("a", alone.write()), Measured("b", two.write())).verdict == "SAME"


def test_other_initial_values_are_not_comparable(tmp_path: Path) -> None:
    numerics = judged(tmp_path, lambda content: content.manifest["init_sha256"].update({"wte.weight": "0"}))
    assert numerics.verdict == "NOT_COMPARABLE"
    assert "initial value of wte.weight" in numerics.reasons[0]


def test_a_failed_probe_is_not_comparable(tmp_path: Path) -> None:
    numerics = judged(tmp_path, lambda content: content.manifest["probes"][0].update(ok=False, got="tf32"))
    assert numerics.verdict == "NOT_COMPARABLE"
    assert "precision probe matmul of jax: expected ieee, got tf32" in numerics.reasons


def test_an_unfinished_pass_has_failed(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        content.finished = False

    numerics = judged(tmp_path, change)
    assert numerics.verdict == "FAILED"
    assert "jax did not finish" in numerics.reasons[0]


def test_a_last_line_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    folder = write_pass(tmp_path / "cut", "torch")
    path = folder / "steps.rank0.jsonl"
    path.write_text(path.read_text()[:-20])
    assert Measured("cut", folder).curve.num_steps == 3


def test_a_damaged_line_elsewhere_is_refused_with_its_place(tmp_path: Path) -> None:
    folder = write_pass(tmp_path / "damaged", "torch")
    path = folder / "steps.rank0.jsonl"
    path.write_text(path.read_text().replace('"step": 1', '"step": ', 1))
    with pytest.raises(RuleError, match=r"steps\.rank0\.jsonl:2"):
        _ = Measured("damaged", folder).curve


def test_a_rank_without_a_steps_file_is_refused(tmp_path: Path) -> None:
    folder = write_pass(tmp_path / "short", "torch", small_spec(world_size=2))
    (folder / "steps.rank1.jsonl").unlink()
    with pytest.raises(RuleError, match=r"steps\.rank1\.jsonl"):
        _ = Measured("short", folder).curve
