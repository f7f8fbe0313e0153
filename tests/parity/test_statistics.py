"""Spreads, ratios and the speed verdict against known values."""

import numpy as np
import pytest

from parity.report.result import Ratio
from parity.speed.statistics import ratio, spread, verdict


def test_spread_of_known_samples() -> None:
    found = spread([float(i) for i in range(11)])
    assert found is not None
    assert (found.n, found.median, found.p10, found.p90, found.mad) == (11, 5.0, 1.0, 9.0, 3.0)


def test_no_samples_have_no_spread_and_no_ratio() -> None:
    assert spread([]) is None
    assert ratio([], [[1.0]]) is None
    assert ratio([[]], [[1.0]]) is None


def test_constant_samples_have_their_quotient_and_no_width() -> None:
    found = ratio([[3.0] * 5, [3.0] * 5], [[2.0] * 5, [2.0] * 5])
    assert found is not None
    assert (found.median, found.ci95, found.passes) == (1.5, [1.5, 1.5], [1.5, 1.5])


def test_the_interval_is_repeatable_and_holds_the_ratio_of_every_pair_of_passes() -> None:
    a, b = [[1.0] * 5, [1.3] * 5], [[1.0] * 5, [1.0] * 5]
    found = ratio(a, b)
    assert found == ratio(a, b)
    assert found is not None
    assert found.passes == [1.0, 1.3]
    assert found.ci95[0] <= 1.0
    assert found.ci95[1] >= 1.3


def test_the_interval_covers_the_truth_about_95_times_in_100() -> None:
    """Windows of 30 normal samples a side, true ratio 1.1; the pairs of passes only widen the interval."""
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        a, b = (generator.normal(mean, 0.05, 30).tolist() for mean in (1.1, 1.0))
        found = ratio([a], [b])
        assert found is not None
        covered += found.ci95[0] <= 1.1 <= found.ci95[1]
    assert covered >= 180


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.5, 0.97, "FASTER"),
        (1.03, 1.5, "SLOWER"),
        (0.99, 1.01, "SAME"),
        (0.97, 1.01, "AMBIGUOUS"),
        (0.5, 1.5, "AMBIGUOUS"),
        (0.98, 1.02, "SAME"),
        (0.5, 0.98, "AMBIGUOUS"),
    ],
)
def test_the_rule_of_the_verdict(low: float, high: float, expected: str) -> None:
    assert verdict(Ratio(median=(low + high) / 2, ci95=[low, high], passes=[])) == expected


def test_a_ratio_and_its_inverse_are_one_comparison() -> None:
    generator = np.random.default_rng(7)
    for _ in range(100):
        a, b = (
            [generator.lognormal(0.0, 0.4, 3).tolist(), generator.lognormal(0.1, 0.4, 3).tolist()]
            for _ in range(2)
        )
        one, inverse = ratio(a, b), ratio(b, a)
        assert one is not None and inverse is not None
        assert inverse.ci95 == pytest.approx([1 / one.ci95[1], 1 / one.ci95[0]])


def test_what_spreads_is_not_called_equal() -> None:
    """A ratio of 0.7 with a wide interval: more windows hardly help, yet the two are not about equal."""
    passes = [[0.5, 0.7, 99.0], [0.6, 0.7, 99.0]], [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    found = ratio(*passes)
    assert found is not None and found.verdict == "AMBIGUOUS"
    assert "spread so much" in found.settle and "equal" not in found.settle


def test_pairs_of_passes_are_told_beside_the_ratio_that_they_are_of() -> None:
    found = ratio([[1.0] * 5, [1.4] * 5], [[1.0] * 5, [1.0] * 5])
    assert found is not None and found.settle is not None
    assert found.settle.startswith(
        "this ratio is 1.200 over all windows and 1.000 to 1.400 by pair of passes"
    )
