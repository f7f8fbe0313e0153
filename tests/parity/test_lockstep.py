"""Lockstep passes compared: clean ones agree, and what is planted is found where it begins."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.judge import rule
from parity.judge.lockstep import Row
from spec.weights import Tensors
from tests.parity.lockstep_writer import LR, STEPS, ZERO_ROWS, ZERO_TENSOR, Sides


def scaled(phase: str, name: str, factor: float) -> Callable[[int, Tensors], None]:
    def change(step: int, tensors: Tensors) -> None:
        tensors[f"{phase}/{name}"] = tensors[f"{phase}/{name}"] * factor

    return change


def first(rows: list[Row]) -> Row:
    return next(row for row in rows if not row.ok)


def test_clean_passes_agree_in_causal_order(tmp_path: Path) -> None:
    rows = Sides(tmp_path).rows()
    assert {row.finding for row in rows} == {"same"}
    assert [row.step for row in rows] == sorted(row.step for row in rows)
    phases = list(dict.fromkeys(row.phase for row in rows if row.step == 0))
    assert phases == ["act", "loss", "grad", "grad_norm", "clipped", "m", "v", "lr", "param"]
    acts = [row.tensor for row in rows if row.phase == "act" and row.step == 0]
    assert acts == ["wte", "ln_f", "output"], "as the torch side noted the calls"
    grads = [row.tensor for row in rows if row.phase == "grad" and row.step == 0]
    assert grads[0] == "ln_f.bias"
    assert grads[-1] == "wte.weight"
    assert {"blocks.0.attn.qkv.bias", "blocks.0.attn.qkv.bias[8:16]"} <= set(grads)
    assert {row.step for row in rows} == set(STEPS)
    assert all(row.floor is not None and row.floor.reruns == 4 for row in rows)


@pytest.mark.parametrize("seed", range(5))
def test_other_roundings_raise_no_alarm(tmp_path: Path, seed: int) -> None:
    def elsewhere(step: int, tensors: Tensors) -> None:
        generator = np.random.default_rng([seed, step])
        for key, array in tensors.items():
            if not key.startswith("param/"):
                tensors[key] = array * (1 + 2.0**-24 * generator.standard_normal(array.shape))

    rows = Sides(tmp_path, jax_profile=elsewhere).rows()
    assert {row.finding for row in rows} == {"same"}


def test_a_meaning_far_above_the_noise_is_semantics(tmp_path: Path) -> None:
    found = first(Sides(tmp_path, jax=scaled("grad", "wpe.weight", 1.001)).rows())
    assert (found.finding, found.step, found.phase, found.tensor) == ("semantics", 0, "grad", "wpe.weight")
    assert found.plainest is not None
    assert found.plainest.ratio == pytest.approx(1 / 1.001, rel=1e-9), "torch over jax"
    assert found.plainest.cosine == pytest.approx(1, rel=1e-12)
    assert found.truth_at_worst is not None
    assert found.truth_at_worst[1] / found.truth_at_worst[0] == pytest.approx(1.001, rel=1e-9)


def test_a_meaning_below_the_noise_is_latent(tmp_path: Path) -> None:
    rows = Sides(tmp_path, jax=scaled("grad", "wpe.weight", 1 + 1e-9)).rows()
    assert all(row.ok for row in rows)
    latent = [row for row in rows if row.finding == "latent"]
    assert [(row.step, row.phase, row.tensor) for row in latent] == [
        (step, "grad", "wpe.weight") for step in STEPS
    ]


def test_a_precision_that_is_not_kept_names_the_side(tmp_path: Path) -> None:
    def through_bfloat16(step: int, tensors: Tensors) -> None:
        bits = tensors["act/ln_f"].astype(np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        tensors["act/ln_f"] = rounded.view(np.float32).astype(np.float64)

    found = first(Sides(tmp_path, jax_profile=through_bfloat16).rows())
    assert (found.finding, found.phase, found.tensor, found.further) == ("precision", "act", "ln_f", "jax")
    assert "jax is off its float64" in found.reason
    assert found.errors is not None
    assert found.errors[1].rms == pytest.approx(1.7e-3, rel=0.2), "uniform within half a spacing"


@pytest.mark.parametrize(("size", "finding"), [(1e-12, "same"), (1e-4, "precision")])
def test_rows_whose_truth_is_zero_hold_roundings_of_their_group(
    tmp_path: Path, size: float, finding: str
) -> None:
    def noise_of(size: float) -> Callable[[int, Tensors], None]:
        def change(step: int, tensors: Tensors) -> None:
            values = np.random.default_rng(step).standard_normal(8)
            tensors[f"grad/{ZERO_TENSOR}"][ZERO_ROWS] = size * values

        return change

    rows = Sides(tmp_path, jax=noise_of(1e-19), jax_profile=noise_of(size)).rows()
    found = {row.finding for row in rows if row.tensor == f"{ZERO_TENSOR}[8:16]" and row.phase == "grad"}
    assert found == {finding}


def zero_gradient_with(mean: float, own_update: float = 0.0) -> Callable[[int, Tensors], None]:
    """A mean gradient of that RMS where the exact one is zero, AdamW's step of it, and another."""

    def change(step: int, tensors: Tensors) -> None:
        m = mean * np.random.default_rng(step).standard_normal(8)
        tensors[f"m/{ZERO_TENSOR}"][ZERO_ROWS] = m
        tensors[f"v/{ZERO_TENSOR}"][ZERO_ROWS] = 0.05 * (m / 0.1) ** 2
        size = np.abs(m) / 0.1
        tensors[f"param/{ZERO_TENSOR}"][ZERO_ROWS] -= LR * (m / 0.1) / (size + 1e-8) + own_update

    return change


@pytest.mark.parametrize(
    ("mean", "own_update", "latent"),
    [
        # Of the phase: a mean of 1e-16, which is rounding, alone or beside an update of 1e-7; one of 1e-12.
        (5e-21, 0.0, set()),
        (5e-21, 1e-10, {"param"}),
        (5e-17, 0.0, {"m", "param"}),
    ],
)
def test_what_adam_makes_of_rounding_is_no_meaning(
    tmp_path: Path, mean: float, own_update: float, latent: set[str]
) -> None:
    """In bfloat16 its floor, a full step, stands for less in float64 than AdamW makes of rounding there."""
    rows = Sides(tmp_path, precision="bf16", jax=zero_gradient_with(mean, own_update)).rows()
    assert all(row.ok for row in rows)
    found = [row for row in rows if row.finding == "latent"]
    assert {row.tensor for row in found} <= {f"{ZERO_TENSOR}[8:16]"}
    assert {row.phase for row in found} == latent
    update = next(row for row in rows if row.phase == "param" and row.tensor == f"{ZERO_TENSOR}[8:16]")
    assert update.truths is not None and update.truths.rms is not None and update.floor is not None
    assert update.truths.rms > rule.semantic_bounds(update.floor, 2.0**-8)[0] * update.s


@pytest.mark.parametrize(
    ("mean", "own_update", "phases"),
    [
        (2e-12, 0.0, set()),
        (2e-12, 1e-6, {"param"}),
        # A mean gradient beyond its own floor excuses nothing.
        (1e-9, 0.0, {"m", "param"}),
        # Nothing was carried, so nothing may be off.
        (0.0, 1e-6, {"param"}),
    ],
)
def test_what_adam_makes_of_rounding_is_no_lack_of_precision(
    tmp_path: Path, mean: float, own_update: float, phases: set[str]
) -> None:
    """One side has exact zeros where the other has rounding, beside a decay that has a size of its own."""

    def decay(step: int, tensors: Tensors) -> None:
        tensors[f"param/{ZERO_TENSOR}"][ZERO_ROWS] -= 1e-6

    off = zero_gradient_with(mean, own_update)
    rows = Sides(tmp_path, both=decay, jax_profile=off).rows()
    assert {row.tensor for row in rows if not row.ok} <= {f"{ZERO_TENSOR}[8:16]"}
    assert {row.phase for row in rows if row.finding == "precision"} == phases
    update = next(row for row in rows if row.phase == "param" and row.tensor == f"{ZERO_TENSOR}[8:16]")
    assert update.errors is not None and update.floors is not None and update.errors[1].rms is not None
    if not phases:
        assert rule.FAILS * update.floors[0].rms < update.errors[1].rms < 2 * update.floors[1].rms


def test_nan_on_one_side_is_found_and_on_both_is_not(tmp_path: Path) -> None:
    def broken(step: int, tensors: Tensors) -> None:
        tensors["grad/wte.weight"][2, 3] = np.nan

    found = first(Sides(tmp_path / "profile", jax_profile=broken).rows())
    assert (found.finding, found.tensor) == ("precision", "wte.weight")
    assert found.sides is not None
    assert found.sides.index == (2, 3)
    found = first(Sides(tmp_path / "meaning", jax=broken).rows())
    assert (found.finding, found.tensor) == ("semantics", "wte.weight")


def test_a_scalar_is_judged_by_its_truth(tmp_path: Path) -> None:
    found = first(Sides(tmp_path, losses={"jax": 1.0001, "jax_f64": 1.0001}).rows())
    assert (found.finding, found.phase, found.tensor) == ("semantics", "loss", None)
    found = first(Sides(tmp_path / "precision", losses={"jax": 1.0001}).rows())
    assert (found.finding, found.further) == ("precision", "jax")


def test_without_truths_only_large_differences_are_different(tmp_path: Path) -> None:
    rows = Sides(tmp_path / "clean").rows(truths=False)
    assert {row.finding for row in rows} == {"same"}
    found = first(Sides(tmp_path / "large", jax=scaled("grad", "wpe.weight", 1.01)).rows(truths=False))
    assert (found.finding, found.tensor, found.truths) == ("different", "wpe.weight", None)
    found = first(Sides(tmp_path / "small", jax=scaled("grad", "wpe.weight", 1 + 1e-5)).rows(truths=False))
    assert found.finding == "unclear"


def test_a_tensor_of_one_side_is_unmatched(tmp_path: Path) -> None:
    def without(step: int, tensors: Tensors) -> None:
        del tensors["m/wte.weight"]
        tensors["v/wte.weight"] = tensors["v/wte.weight"][:-1]

    rows = Sides(tmp_path, jax=without).rows()
    alone = {(row.phase, row.tensor) for row in rows if row.finding == "unmatched"}
    assert alone == {("m", "wte.weight"), ("v", "wte.weight")}
