"""The judge on pass folders made of formulas: every verdict, the first divergence, and damaged folders."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from parity.judge.align import Measured
from parity.judge.tolerances import covered_steps
from parity.judge.verdict import gravest, judge
from parity.report.result import Numerics
from spec import record
from spec.edits import Edit
from tests.parity.judging import Change, judged
from tests.parity.pass_writer import Content, make_content, small_job, small_spec, write_pass


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
    assert numerics.reasons[0] == "loss is nan on both sides at step 2 and 1 later steps"
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
    steps = covered_steps("strict") + 2
    numerics = judged(tmp_path, lambda content: content.set_value(steps - 1, "loss", 9.0), steps=steps)
    assert numerics.verdict == "INCONCLUSIVE"
    assert "run fewer steps" in numerics.reasons[1]


def test_within_the_covered_steps_it_is_different_however_long_the_run(tmp_path: Path) -> None:
    steps = covered_steps("strict") + 2
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
            latent=None,
            tensors=[],
            unmeasured={},
        )

    order = ["SAME", "INCONCLUSIVE", "DIFFERENT", "NOT_COMPARABLE", "FAILED"]
    for index in range(1, len(order) + 1):
        assert gravest([numerics(verdict) for verdict in order[:index]]).verdict == order[index - 1]


def test_a_single_element_that_was_not_updated_is_found(tmp_path: Path) -> None:
    """Fewer than a hundredth of a tensor: what the RMS leaves out and the moments do not show."""

    def leave_one_behind(content: Content) -> None:
        rates = [record.from_bits(line["lr_bits"]) for line in content.steps[0]]
        content.tensors[3]["param/wte.weight"][3, 5] += np.float32(0.5 * sum(rates))

    numerics = judged(tmp_path, leave_one_behind)
    assert numerics.verdict == "DIFFERENT"
    assert first(numerics) == (3, "param", "wte.weight")
    assert "1 elements with clear gradients parted" in numerics.reasons[0]


def test_shapes_that_differ_are_named(tmp_path: Path) -> None:
    def cut(content: Content) -> None:
        content.tensors[0]["grad/wpe.weight"] = content.tensors[0]["grad/wpe.weight"][:-1]

    numerics = judged(tmp_path, cut)
    assert numerics.verdict == "DIFFERENT"
    assert first(numerics) == (0, "grad", "wpe.weight of shape (8, 8)")


def test_in_float64_the_tolerances_cover_a_hundred_steps(tmp_path: Path) -> None:
    assert covered_steps("f64") == 100
    sides = []
    for side in ("torch", "jax"):
        content = make_content(small_job(tmp_path / side, side, small_spec(steps=62, precision="f64")))
        if side == "jax":
            content.set_value(60, "loss", float(content.steps[0][60]["loss"]) * (1 + 1e-9))
        sides.append(Measured(side, content.write()))
    assert judge(*sides).verdict == "DIFFERENT"
