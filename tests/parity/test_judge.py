"""The judge on pass folders made of formulas: every verdict, the first divergence, and damaged folders."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.judge.align import Measured
from parity.judge.tolerances import COVERED_STEPS
from parity.judge.verdict import gravest, judge
from parity.report.result import Numerics
from spec.edits import Edit
from spec.errors import RuleError
from spec.run import Execution
from tests.parity.pass_writer import Content, make_content, small_job, small_spec, write_pass

Change = Callable[[Content], None]


def judged(
    tmp_path: Path, change: Change = lambda _: None, both: Change = lambda _: None, **spec: int
) -> Numerics:
    """The verdict about a clean torch pass and a jax pass after `change`; `both` is done to each."""
    sides = {}
    for side in ("torch", "jax"):
        content = make_content(small_job(tmp_path / side, side, small_spec(**spec)))
        both(content)
        if side == "jax":
            change(content)
        sides[side] = Measured(side, content.write())
    return judge(sides["torch"], sides["jax"])


def first(numerics: Numerics) -> tuple[int, str, str | None]:
    assert numerics.first_divergence is not None
    found = numerics.first_divergence
    return found.step, found.phase, found.tensor


def shift(step: int, key: str, factor: float) -> Change:
    def change(content: Content) -> None:
        array = content.tensors[step][key]
        content.tensors[step][key] = (array * (1 + factor)).astype(array.dtype)

    return change


def test_equal_passes_are_the_same(tmp_path: Path) -> None:
    numerics = judged(tmp_path)
    assert numerics.verdict == "SAME"
    assert numerics.reasons == []
    assert numerics.first_divergence is None
    assert numerics.loss is not None
    assert numerics.loss.max_rel == 0.0
    assert all(item.ok for item in numerics.tensors)
    # Every tensor of every observed phase, the rows without a gradient apart.
    assert len(numerics.tensors) == 5 * (16 + 1)


def test_equal_passes_of_two_ranks_are_the_same(tmp_path: Path) -> None:
    assert judged(tmp_path, world_size=2).verdict == "SAME"


@pytest.mark.parametrize(
    ("step", "key", "phase"),
    [
        (0, "grad/wpe.weight", "grad"),
        (0, "param/ln_f.bias", "param"),
        (3, "m/blocks.0.attn.proj.weight", "m"),
        (3, "v/wte.weight", "v"),
        (3, "param/blocks.0.mlp.fc.weight", "param"),
    ],
)
def test_a_changed_tensor_is_named(tmp_path: Path, step: int, key: str, phase: str) -> None:
    numerics = judged(tmp_path, shift(step, key, 0.5))
    assert numerics.verdict == "DIFFERENT"
    assert first(numerics) == (step, phase, key.partition("/")[2])
    assert numerics.first_divergence is not None
    torch_value, jax_value = (float(numerics.first_divergence.values[side]) for side in ("torch", "jax"))
    assert jax_value == pytest.approx(1.5 * torch_value, rel=1e-6)
    assert key.partition("/")[2] in numerics.reasons[0]


def test_the_worst_element_is_found_by_its_place_in_the_whole_tensor(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        # Behind the rows without a gradient, which are judged apart.
        content.tensors[0]["grad/blocks.0.attn.qkv.bias"][21] += 1.0

    numerics = judged(tmp_path, change)
    assert first(numerics) == (0, "grad", "blocks.0.attn.qkv.bias")
    assert numerics.first_divergence is not None
    assert numerics.first_divergence.index == [21]


@pytest.mark.parametrize("quantity", ["loss", "grad_norm", "lr"])
def test_a_curve_that_leaves_its_band_is_named_with_its_step(tmp_path: Path, quantity: str) -> None:
    numerics = judged(tmp_path, lambda content: content.set_value(2, quantity, 7.25))
    assert numerics.verdict == "DIFFERENT"
    assert first(numerics) == (2, quantity, None)
    assert "7.25" in numerics.reasons[0]


def test_the_last_bit_of_a_learning_rate_counts(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        lr = float(content.steps[0][1]["lr"])
        content.set_value(1, "lr", float(np.nextafter(lr, 1.0)))

    assert first(judged(tmp_path, change)) == (1, "lr", None)


def test_of_several_differences_the_first_in_causal_order_is_named(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        shift(3, "param/wte.weight", 0.5)(content)
        shift(0, "param/wte.weight", 0.5)(content)
        shift(0, "grad/wte.weight", 0.5)(content)
        shift(0, "grad/ln_f.bias", 0.5)(content)
        content.set_value(0, "grad_norm", 9.0)

    # Gradients come before their norm, and the backward pass reaches ln_f before the embedding.
    assert first(judged(tmp_path, change)) == (0, "grad", "ln_f.bias")


def test_rows_without_a_gradient_may_differ_by_rounding_alone(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        content.tensors[0]["grad/blocks.0.attn.qkv.bias"][8:16] *= -1e-6
        content.tensors[3]["param/blocks.0.attn.qkv.bias"][8:16] += 1e-4

    def both(content: Content) -> None:
        content.tensors[0]["grad/blocks.0.attn.qkv.bias"][8:16] *= 1e-6

    numerics = judged(tmp_path, change, both)
    assert numerics.verdict == "SAME"
    apart = [item for item in numerics.tensors if item.tensor == "blocks.0.attn.qkv.bias[8:16]"]
    assert len(apart) == 5
    assert all("exact gradient zero" in item.note for item in apart)


def test_rows_without_a_gradient_may_not_have_one(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        content.tensors[0]["grad/blocks.0.attn.qkv.bias"][8:16] += 0.01

    assert first(judged(tmp_path, change)) == (0, "grad", "blocks.0.attn.qkv.bias[8:16]")


def test_rows_without_a_gradient_travel_no_further_than_adam_can_carry_them(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        content.tensors[3]["param/blocks.0.attn.qkv.bias"][8:16] += 0.1

    assert first(judged(tmp_path, change)) == (3, "param", "blocks.0.attn.qkv.bias[8:16]")


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_not_finite_on_one_side_is_different(tmp_path: Path, odd: float) -> None:
    numerics = judged(tmp_path, lambda content: content.set_value(1, "loss", odd))
    assert numerics.verdict == "DIFFERENT"
    assert first(numerics) == (1, "loss", None)
    assert numerics.loss is not None
    assert numerics.loss.max_rel is None


def test_not_finite_on_both_sides_alike_is_the_same_and_is_said(tmp_path: Path) -> None:
    def both(content: Content) -> None:
        content.set_value(2, "loss", float("nan"))
        content.set_value(3, "loss", float("nan"))
        content.tensors[0]["grad/wte.weight"][1, 2] = float("inf")

    numerics = judged(tmp_path, both=both)
    assert numerics.verdict == "SAME"
    assert numerics.reasons == ["loss is nan on both sides at step 2 and 1 later steps"]
    (item,) = [item for item in numerics.tensors if (item.phase, item.tensor) == ("grad", "wte.weight")]
    assert "1 elements not finite on both sides" in item.note


def test_a_nan_in_a_tensor_of_one_side_is_different_and_has_its_place(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        content.tensors[3]["v/wte.weight"][4, 5] = float("nan")

    numerics = judged(tmp_path, change)
    assert numerics.verdict == "DIFFERENT"
    assert numerics.first_divergence is not None
    assert numerics.first_divergence.index == [4, 5]
    assert numerics.first_divergence.values["jax"] == "nan"


def test_a_tensor_that_one_side_lacks_is_unmatched(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        del content.tensors[3]["param/ln_f.weight"]

    numerics = judged(tmp_path, change)
    assert numerics.verdict == "DIFFERENT"
    assert numerics.first_divergence is not None
    assert numerics.first_divergence.class_ == "unmatched"
    assert "jax wrote no ln_f.weight" in numerics.reasons[0]


def test_tensors_of_a_whole_step_that_one_side_lacks_are_unmatched(tmp_path: Path) -> None:
    numerics = judged(tmp_path, lambda content: content.tensors.pop(0) and None)
    assert numerics.verdict == "DIFFERENT"
    assert "jax wrote no tensors of step 0" in numerics.reasons[0]


def test_declared_facts_come_first(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        content.manifest["facts"]["parameters"][1]["decayed"] = False
        content.set_value(0, "loss", 9.0)

    numerics = judged(tmp_path, change)
    assert numerics.verdict == "DIFFERENT"
    assert first(numerics) == (0, "facts", "wpe.weight")
    assert numerics.reasons[0] == ("first divergence: declared decayed of wpe.weight: torch True, jax False")


def test_a_parameter_that_one_side_does_not_declare_is_unmatched(tmp_path: Path) -> None:
    numerics = judged(tmp_path, lambda content: content.manifest["facts"]["parameters"].pop() and None)
    assert numerics.first_divergence is not None
    assert numerics.first_divergence.class_ == "unmatched"


def test_ranks_that_end_in_other_states_are_named(tmp_path: Path) -> None:
    numerics = judged(tmp_path, lambda content: content.digests[1].update(param="0"), world_size=2)
    assert numerics.verdict == "DIFFERENT"
    assert first(numerics)[1] == "replicas"
    assert "param of rank 1" in numerics.reasons[0]
    assert numerics.first_divergence is not None
    assert numerics.first_divergence.class_ == "state"


@pytest.mark.parametrize("name", ["tokens", "skipped"])
def test_counts_must_be_equal(tmp_path: Path, name: str) -> None:
    numerics = judged(tmp_path, lambda content: content.steps[0][2].update({name: 7}))
    assert numerics.verdict == "DIFFERENT"
    assert first(numerics) == (2, name, None)


def test_beyond_the_covered_steps_a_curve_alone_is_inconclusive(tmp_path: Path) -> None:
    steps = COVERED_STEPS + 2
    numerics = judged(tmp_path, lambda content: content.set_value(steps - 1, "loss", 9.0), steps=steps)
    assert numerics.verdict == "INCONCLUSIVE"
    assert "run fewer steps" in numerics.reasons[1]


def test_within_the_covered_steps_it_is_different_however_long_the_run(tmp_path: Path) -> None:
    steps = COVERED_STEPS + 2
    numerics = judged(tmp_path, lambda content: content.set_value(1, "loss", 9.0), steps=steps)
    assert numerics.verdict == "DIFFERENT"


def test_in_float64_a_difference_is_one_of_meaning(tmp_path: Path) -> None:
    sides = []
    for side in ("torch", "jax"):
        content = make_content(small_job(tmp_path / side, side, small_spec(precision="f64")))
        if side == "jax":
            content.set_value(1, "loss", float(content.steps[0][1]["loss"]) * (1 + 1e-9))
        sides.append(Measured(side, content.write()))
    numerics = judge(*sides)
    assert numerics.verdict == "DIFFERENT"
    assert numerics.first_divergence is not None
    assert numerics.first_divergence.class_ == "semantics"


def test_another_problem_is_not_comparable_and_its_fields_are_named(tmp_path: Path) -> None:
    a = write_pass(tmp_path / "a", "torch", small_spec(steps=4))
    b = write_pass(tmp_path / "b", "jax", small_spec(steps=5))
    numerics = judge(Measured("a", a), Measured("b", b))
    assert numerics.verdict == "NOT_COMPARABLE"
    assert "problem.steps: a 4, b 5" in numerics.reasons


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


def test_an_edit_does_not_change_the_problem(tmp_path: Path) -> None:
    """What a side is asked to do otherwise is for the evidence to find, not for the gate."""
    job = dataclasses.replace(
        small_job(tmp_path / "jax", "jax"), edits=(Edit(name="schedule_offset", value=1),)
    )
    edited = Measured("jax", make_content(job).write())
    numerics = judge(Measured("torch", write_pass(tmp_path / "torch", "torch")), edited)
    assert numerics.verdict == "DIFFERENT"
    assert first(numerics) == (0, "lr", None)


def test_the_gravest_verdict_decides() -> None:
    def numerics(verdict: str) -> Numerics:
        return Numerics(
            pair=[verdict, ""],
            verdict=verdict,  # type: ignore[arg-type]
            reasons=[],
            steps=0,
            loss=None,
            grad_norm=None,
            lr=None,
            first_divergence=None,
            latent=[],
            tensors=[],
        )

    order = ["SAME", "INCONCLUSIVE", "DIFFERENT", "NOT_COMPARABLE", "FAILED"]
    for index in range(1, len(order) + 1):
        assert gravest([numerics(verdict) for verdict in order[:index]]).verdict == order[index - 1]
