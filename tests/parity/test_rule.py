"""The decision rule about one tensor, its floors and constants."""

import math
from dataclasses import replace

import numpy as np
import pytest

from parity.judge import rule
from parity.judge.floors import KIN, Least, floor, least, raised, within
from parity.judge.likeness import liken
from parity.judge.measures import rms
from spec.own_optimizer import OwnOptimizer
from spec.precision import UNIT_ROUNDOFF
from spec.run import AdamW

U = UNIT_ROUNDOFF["float32"]
LEAST = least(U, U, U, terms=256)
GENERATOR = np.random.default_rng(5)
TRUTH = GENERATOR.standard_normal(2000)


def noisy(size: float, seed: int) -> np.ndarray:
    return TRUTH * (1 + size * np.random.default_rng(seed).standard_normal(TRUTH.size))


def make_floor(size: float) -> object:
    return floor(TRUTH, [noisy(size, seed) for seed in range(8)], 1.0, LEAST)


def test_a_floor_is_the_rms_of_the_reruns() -> None:
    reruns = [noisy(1e-3, seed) for seed in range(8)]
    found = floor(TRUTH, reruns, 2.0, LEAST)
    expected = math.sqrt(float(np.mean([(rerun - TRUTH) ** 2 for rerun in reruns]))) / 2.0
    assert found.rms == pytest.approx(expected, rel=1e-12)
    assert found.worst == max(
        float((np.abs(r - TRUTH) / np.maximum(np.abs(TRUTH), 2.0)).max()) for r in reruns
    )
    assert found.reruns == 8


def test_a_floor_without_reruns_is_the_least() -> None:
    found = floor(TRUTH, [], 1.0, LEAST)
    assert (found.rms, found.worst, found.reruns) == (16 * U, 16 * U, 0)
    assert least(2.0**-8, U, U, 256).whole == 2.0**-8, "sums in float32 count for less than one bfloat16"


def test_an_update_is_cut_off_by_its_parameter() -> None:
    found = floor(np.full(10, 1e-6), [], 1e-6, LEAST, parameter=np.full(10, 2.0))
    assert found.reach == pytest.approx((2e6, 2e6))
    assert found.rms == pytest.approx(2e6 * U)


def test_noise_of_ones_own_hides_at_most_so_much() -> None:
    quiet, loud = floor(TRUTH, [], 1.0, LEAST), floor(TRUTH, [noisy(1e-1, 0)], 1.0, LEAST)
    assert within(loud, quiet).rms == KIN * quiet.rms
    assert within(quiet, loud) == quiet


def test_semantics_are_equal_within_a_rounding_that_the_tensor_magnifies() -> None:
    phi = floor(TRUTH, [], 1.0, LEAST)

    def equal(size: float) -> bool:
        return rule.semantically_equal(liken(noisy(size, 1), TRUTH, 1.0, rule.U64), 1.0, phi, U)

    assert equal(1e-15)
    assert not equal(1e-11)
    magnified = floor(TRUTH, [noisy(1e-2, 0)], 1.0, LEAST)
    found = liken(noisy(1e-11, 1), TRUTH, 1.0, rule.U64)
    assert rule.semantically_equal(found, 1.0, magnified, U), "its rounding is magnified as much in float64"
    lone = TRUTH.copy()
    lone[7] += 1e-9 * max(1.0, abs(lone[7]))
    assert not rule.semantically_equal(liken(lone, TRUTH, 1.0, rule.U64), 1.0, phi, U), "a single element"


ADAM = AdamW(beta1=0.9, beta2=0.95, eps=1e-8)


def moments_of(size: float, seed: int, steps: int) -> tuple[rule.Moments, np.ndarray]:
    """Moments of so many gradients of that size, and the last update."""
    m, v = np.zeros(200), np.zeros(200)
    for gradient in size * np.random.default_rng(seed).standard_normal((steps, 200)):
        m, v = 0.9 * m + 0.1 * gradient, 0.95 * v + 0.05 * gradient**2
    update = -1e-3 * m / (1 - 0.9**steps) / (np.sqrt(v / (1 - 0.95**steps)) + 1e-8)
    return rule.Moments(m=m, v=v, lr=1e-3), update


@pytest.mark.parametrize("steps", [1, 50])
@pytest.mark.parametrize("size", [1e-19, 1e-3])
def test_updates_made_of_rounding_are_equal_but_not_what_stands_beside_it(size: float, steps: int) -> None:
    """Gradients far below AdamW's eps, and far above: there rounding makes full steps in float64 too."""
    (one, a), (other, b) = (moments_of(size, seed, steps) for seed in (1, 2))
    # A millionth of a group that holds a rounding of that size.
    s, phi = 1e9 * size, floor(one.m, [], 1e9 * size, LEAST.of_nothing(1e6 * U))
    apart = rule.steps_of_rounding([one, other], s, phi, U, ADAM)
    assert apart is not None
    decay = 1e-5 * GENERATOR.standard_normal(200)
    whole = rms(decay)
    of_update = floor(decay, [], whole, LEAST)
    assert not rule.semantically_equal(liken(a, b, whole, rule.U64), whole, of_update, U)
    assert rule.equal_but_for(apart, decay + a, decay + b, whole, of_update, U)
    beside = decay + b + 3 * apart
    assert not rule.equal_but_for(apart, decay + a, beside, whole, of_update, U)


def test_what_is_more_than_rounding_excuses_no_update() -> None:
    (one, _), (other, _) = (moments_of(1e-19, seed, 5) for seed in (1, 2))
    s = 1e-10
    phi = floor(one.m, [], s, LEAST.of_nothing(1e6 * U))
    larger, _ = moments_of(1e-16, 3, 5)
    assert rule.steps_of_rounding([one, other], s, phi, U, ADAM) is not None
    assert rule.steps_of_rounding([one, replace(other, m=larger.m)], s, phi, U, ADAM) is None
    assert rule.steps_of_rounding([one, replace(other, m=other.m * np.nan)], s, phi, U, ADAM) is None
    assert rule.steps_of_rounding([one, other], s, phi, U, OwnOptimizer()) is None


def test_an_update_is_excused_where_its_gradient_is_truly_zero_and_no_further() -> None:
    true = rule.Moments(m=np.array([0.0, 1e-19, 1e-3, 0.0]), v=np.array([0.0, 1e-37, 1e-5, 0.0]), lr=1e-3)
    side = rule.Moments(m=np.array([1e-9, 1e-9, 1e-3, 0.0]), v=np.array([1e-17, 1e-17, 1e-5, 0.0]), lr=1e-3)
    s = rms(true.m)
    zero = rule.zero_in_truth([true.m, true.m], s, floor(true.m, [], s, LEAST), U)
    assert zero.tolist() == [True, True, False, True]
    far = rule.carried(zero, [side, true], ADAM)
    assert (far[:2] > 1e-4).all() and far[2:].tolist() == [0, 0]
    assert rule.without(far, far, np.zeros(4)) == pytest.approx(0, abs=1e-20)
    assert rule.without(far, far + 1e-6, np.zeros(4)) == pytest.approx(1e-6)
    broken = replace(side, m=side.m * np.nan)
    assert rule.carried(zero, [broken, true], ADAM).tolist() == [0] * 4
    assert np.isnan(rule.without(far, broken.m, np.zeros(4))).all()


def test_what_is_not_finite_on_one_side_is_never_equal() -> None:
    phi = floor(TRUTH, [], 1.0, LEAST)
    broken = TRUTH.copy()
    broken[3] = np.nan
    found = liken(broken, TRUTH, 1.0, U)
    assert not rule.semantically_equal(found, 1.0, phi, U)
    assert rule.visible(found, 1.0, phi)
    assert (
        rule.beyond_precision(rule.error(found, broken, TRUTH, 1.0), phi, 8) == "not finite on one side only"
    )
    assert rule.without_truth(found, 1.0, phi) == "different"


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda t: t, ""),
        (lambda t: t + 20 * 16 * U * GENERATOR.standard_normal(t.size), "rms"),
        (lambda t: np.where(np.arange(t.size) == 5, t + 1e-2, t), "rms"),
        (lambda t: t * (1 + 100 * U), "mean ratio"),
    ],
)
def test_precision_is_judged_by_three_measures(change, part: str) -> None:
    phi, side = floor(TRUTH, [], 1.0, LEAST), change(TRUTH)
    found = rule.error(liken(side, TRUTH, 1.0, U), side, TRUTH, 1.0)
    beyond = rule.beyond_precision(found, phi, rule.FAILS)
    assert beyond.startswith(part)
    assert bool(beyond) == bool(part)


def test_long_sums_in_the_dtype_of_the_results_may_lean() -> None:
    assert rule.multiple(U, U, 256) == 32
    assert rule.multiple(U, U, 4) == 8
    assert rule.multiple(2.0**-8, U, 100_000) == 8


def test_without_truths_there_is_a_gap_in_which_nothing_is_said() -> None:
    phi = floor(TRUTH, [], 1.0, LEAST)
    sizes = {2: "same", 20: "unclear", 200: "different"}
    for times, finding in sizes.items():
        found = liken(TRUTH + times * phi.rms, TRUTH, 1.0, U)
        assert rule.without_truth(found, 1.0, phi) == finding


def test_a_cast_raises_the_floor() -> None:
    phi = Least(whole=U, factor=U, stored=U)
    found = raised(floor(TRUTH, [], 1.0, phi), 2.0**-8)
    assert (found.rms, found.worst, found.factor) == (2.0**-8,) * 3
