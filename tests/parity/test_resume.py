"""What `--resume` means, what is refused before anything starts, and how runs are judged that began later."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from parity.judge.align import Measured
from parity.judge.verdict import judge
from parity.passes import observed
from parity.plan import Plan
from parity.report.result import Numerics
from parity.resume import Start, find_start
from spec import record
from spec.checkpoint import Position, Saver
from spec.errors import RuleError
from spec.presets import run_spec
from spec.run import RunSpec
from tests.parity.pass_writer import Content, make_content, small_job, small_spec

BOTH = ("torch", "jax")
SPEC = run_spec("toy-mlp", steps=9)


def save(folder: Path, *steps: int, spec: RunSpec = SPEC) -> None:
    """Small checkpoints of a pass."""
    saver = Saver(folder / "checkpoints")
    for step in steps:
        position = Position(step=step, applied=step, skipped=0)
        saver.save(spec, position, {"param/x": np.zeros(1, np.float32)}, {"side": "torch"})
    saver.close()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Run 1: both sides have checkpoints after 3 steps, and torch after 6 too. Run 2: torch alone has one."""
    save(tmp_path / "runs/0001_toy-mlp_x/passes/001_torch_run", 3, 6)
    save(tmp_path / "runs/0001_toy-mlp_x/passes/002_jax_run", 2, 3)
    save(tmp_path / "runs/0001_toy-mlp_x/passes/003_torch_handoff", 8)
    save(tmp_path / "runs/0002_toy-mlp_x/passes/001_torch_run", 5)
    (tmp_path / "runs/0002_toy-mlp_x/passes/002_jax_run").mkdir()
    return tmp_path / "runs"


def test_sides_go_on_from_their_own_checkpoints_at_the_newest_step_of_both(runs: Path) -> None:
    start = find_start("1", runs, BOTH, SPEC.problem)
    passes = runs / "0001_toy-mlp_x/passes"
    assert start.step == 3 and not start.from_equal_bits
    assert start.checkpoints == {
        "torch": passes / "001_torch_run/checkpoints/step000003",
        "jax": passes / "002_jax_run/checkpoints/step000003",
    }


def test_one_side_goes_on_from_its_newest(runs: Path) -> None:
    start = find_start(str(runs / "0001_toy-mlp_x"), runs, ("torch",), SPEC.problem)
    assert start.step == 6 and start.from_equal_bits


def test_a_checkpoint_is_for_every_side(runs: Path) -> None:
    where = runs / "0002_toy-mlp_x/passes/001_torch_run/checkpoints/step000005"
    start = find_start(str(where), runs, BOTH, SPEC.problem)
    assert start.step == 5 and start.from_equal_bits
    assert set(start.checkpoints.values()) == {where}
    # A pass, or a run made by hand, has one side's: its newest.
    assert find_start(str(where.parents[1]), runs, BOTH, SPEC.problem) == start


def test_nothing_asked_for_is_a_start_from_the_initial_weights(runs: Path) -> None:
    assert find_start(None, runs, BOTH, SPEC.problem) == Start()
    assert Start().from_equal_bits


@pytest.mark.parametrize(
    ("where", "backends", "message"),
    [
        ("last", BOTH, "torch after 5; jax after none"),
        ("last", ("jax",), "jax after none"),
        ("9", BOTH, "newest in"),
        ("/no/such/folder", BOTH, "newest in"),
    ],
)
def test_what_cannot_be_found_is_refused(
    runs: Path, where: str, backends: tuple[str, ...], message: str
) -> None:
    with pytest.raises(RuleError, match=message):
        find_start(where, runs, backends, SPEC.problem)


def test_the_refusal_names_a_checkpoint_that_would_do(runs: Path) -> None:
    with pytest.raises(RuleError) as refused:
        find_start("2", runs, BOTH, SPEC.problem)
    where = refused.value.mend.rpartition(" ")[2]
    assert find_start(where, runs, BOTH, SPEC.problem).step == 5


def test_another_problem_and_a_run_at_its_end_are_refused(runs: Path) -> None:
    with pytest.raises(RuleError, match="precision"):
        find_start("1", runs, BOTH, run_spec("toy-mlp", steps=9, precision="f64").problem)
    with pytest.raises(RuleError, match="6 steps done of 6"):
        find_start("1", runs, ("torch",), run_spec("toy-mlp", steps=6).problem)


def test_first_gradients_are_looked_at_where_sides_begin_with_equal_bits(tmp_path: Path) -> None:
    def entries(*checkpoints: str) -> set[str]:
        own = dict(zip(BOTH, map(Path, checkpoints), strict=False))
        plan = Plan(spec=SPEC, backends=BOTH, timeout_s=9.0, start=Start(step=3, checkpoints=own))
        return set(observed(plan))

    assert "grad@3" in entries("same", "same")
    assert entries("one", "other") == {"m@last", "v@last", "param@last"}


def resumed(folder: Path, side: str, first: int, checkpoint: str, observe: tuple[str, ...]) -> Content:
    """What a side writes that goes on at a step."""
    job = dataclasses.replace(small_job(folder, side), resume=checkpoint, observe=observe)
    content = make_content(job)
    content.steps = [lines[first:] for lines in content.steps]
    return content


LAST = ("m@last", "v@last", "param@last")


def test_a_resumed_run_is_compared_with_the_whole_one_from_its_first_step(tmp_path: Path) -> None:
    whole = Measured("whole", make_content(small_job(tmp_path / "whole", "torch")).write())
    content = resumed(tmp_path / "on", "torch", 2, "c", LAST)
    content.manifest["init_sha256"] = {}
    numerics = judge(whole, Measured("on", content.write()))
    assert (numerics.verdict, numerics.steps) == ("SAME", 2)
    assert numerics.loss is not None and numerics.loss.at_step == 2
    assert {item.step for item in numerics.tensors} == {3}


@pytest.mark.parametrize(("step", "value"), [(2, 5.0), (3, 5.0)])
def test_a_resumed_run_that_parts_is_named_by_its_step(tmp_path: Path, step: int, value: float) -> None:
    whole = Measured("whole", make_content(small_job(tmp_path / "whole", "torch")).write())
    content = resumed(tmp_path / "on", "torch", 2, "c", LAST)
    content.manifest["init_sha256"] = {}
    content.steps[0][step - 2] |= record.float_fields("loss", value)
    numerics = judge(whole, Measured("on", content.write()))
    assert numerics.verdict == "DIFFERENT" and numerics.first_divergence is not None
    assert (numerics.first_divergence.step, numerics.first_divergence.phase) == (step, "loss")


def both_resumed(folder: Path, *checkpoints: str, observe: tuple[str, ...] = LAST) -> list[Content]:
    return [
        resumed(folder / side, side, 2, checkpoint, observe)
        for side, checkpoint in zip(BOTH, checkpoints, strict=True)
    ]


def verdict_of(contents: list[Content]) -> Numerics:
    return judge(*(Measured(content.job.side, content.write()) for content in contents))


def test_sides_that_go_on_from_one_checkpoint_must_hold_the_same_bits(tmp_path: Path) -> None:
    contents = both_resumed(tmp_path, "c", "c")
    contents[1].manifest["init_sha256"] = dict.fromkeys(contents[0].manifest["init_sha256"], "other")
    assert verdict_of(contents).verdict == "NOT_COMPARABLE"


def test_sides_that_go_on_from_their_own_need_not(tmp_path: Path) -> None:
    contents = both_resumed(tmp_path, "c", "d")
    contents[1].manifest["init_sha256"] = dict.fromkeys(contents[0].manifest["init_sha256"], "other")
    assert verdict_of(contents).verdict == "SAME"


@pytest.mark.parametrize(("other", "verdict"), [("c", "DIFFERENT"), ("d", "SAME")])
def test_a_first_step_has_its_own_tolerance_from_equal_bits_only(
    tmp_path: Path, other: str, verdict: str
) -> None:
    """1.8e-6 lies between the tolerances of a first loss and of a later one."""
    contents = both_resumed(tmp_path, "c", other)
    loss = contents[1].steps[0][0]["loss"]
    contents[1].steps[0][0] |= record.float_fields("loss", loss * (1 + 1.8e-6))
    assert verdict_of(contents).verdict == verdict


def test_runs_without_a_step_in_common_are_not_compared(tmp_path: Path) -> None:
    early = make_content(small_job(tmp_path / "early", "torch"))
    early.steps = [lines[:2] for lines in early.steps]
    late = resumed(tmp_path / "late", "torch", 2, "c", LAST)
    late.manifest["init_sha256"] = {}
    numerics = judge(Measured("early", early.write()), Measured("late", late.write()))
    assert numerics.verdict == "NOT_COMPARABLE" and "no step in common" in numerics.reasons[0]


def test_rounding_is_allowed_for_since_the_step_of_equal_bits(tmp_path: Path) -> None:
    """Beyond the steps that tolerances cover a loss that parts makes no DIFFERENT; after a common checkpoint
    they are counted anew."""
    spec = small_spec(steps=60)
    found = []
    for name, checkpoints in (("own", "cd"), ("common", "cc")):
        contents = []
        for side, checkpoint in zip(BOTH, checkpoints, strict=True):
            job = small_job(tmp_path / name / side, side, spec)
            content = make_content(dataclasses.replace(job, resume=checkpoint, observe=LAST))
            content.steps = [lines[55:] for lines in content.steps]
            contents.append(content)
        contents[1].steps[0][2] |= record.float_fields("loss", 9.0)
        found.append(verdict_of(contents).verdict)
    assert found == ["INCONCLUSIVE", "DIFFERENT"]
