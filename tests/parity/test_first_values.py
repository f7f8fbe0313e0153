"""What two sides drew for themselves, told apart; against scipy's test where it can be had."""

import numpy as np
import pytest

from parity.pairs.first_values import ADVICE, refusals, same_distribution


def draws(seed: int, size: int = 400) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size)


def test_the_probability_is_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for one, other in ((draws(1), draws(2)), (draws(1), draws(2) * 1.3), (draws(1), draws(2, 90) + 0.2)):
        expected = stats.ks_2samp(one, other, method="exact").pvalue
        assert same_distribution(one, other) == pytest.approx(expected, rel=0.2)


def test_defaults_of_both_frameworks_are_named() -> None:
    generator, fan_in = np.random.default_rng(0), 64
    kaiming = generator.uniform(-1, 1, (128, fan_in)) / np.sqrt(fan_in)
    lecun = generator.standard_normal((128, fan_in)) / np.sqrt(fan_in)
    bias = generator.uniform(-1, 1, 128) / np.sqrt(fan_in)
    found = refusals(
        {"param/w": kaiming, "param/b": bias, "param/same": bias},
        {"param/w": lecun, "param/b": np.zeros(128), "param/same": bias},
    )
    weight, offset, advice = found
    assert "uniform, U(+-1/sqrt(fan in)), Kaiming with a = sqrt(5); jax" in weight
    assert "normal, LeCun: another distribution" in weight
    assert offset.endswith("jax zeros: another distribution") and advice == ADVICE


def test_other_draws_of_one_distribution_are_not_called_another() -> None:
    (line, _) = refusals({"param/w": draws(1)}, {"param/w": draws(2)})
    assert "maybe of one distribution" in line


def test_equal_values_are_no_refusal() -> None:
    assert refusals({"param/w": draws(1), "buffer/n": draws(3)}, {"param/w": draws(1)}) == []
