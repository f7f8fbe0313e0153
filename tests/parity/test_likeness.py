"""Numbers that tell how two arrays differ, against formulas written out here."""

import math

import numpy as np
import pytest

from parity.judge.likeness import factor, liken, spacing

U32 = 2.0**-24


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    b = generator.standard_normal((9, 7))
    return b * 1.01 + 1e-3 * generator.standard_normal((9, 7)), b


def test_against_formulas(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = arrays
    s = float(np.sqrt(np.mean(b**2)))
    found = liken(a, b, s, U32)
    assert found.rms == pytest.approx(math.sqrt(float(np.mean((a - b) ** 2))), rel=1e-14)
    relative = np.abs(a - b) / np.maximum(np.maximum(np.abs(a), np.abs(b)), s)
    assert found.largest == relative.max() == relative[found.index]
    assert found.ratio == pytest.approx(float((a * b).sum() / (b * b).sum()), rel=1e-14)
    assert found.cosine == pytest.approx(
        float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b)), rel=1e-14
    )
    assert (found.a, found.b) == (a[found.index], b[found.index])


def test_ulps_are_those_of_numpy() -> None:
    generator = np.random.default_rng(2)
    for value in (generator.standard_normal(50) * 10.0 ** np.arange(-20, 30)).astype(np.float32):
        neighbour = np.nextafter(value, np.float32(np.inf))
        assert spacing(value, value, U32) == np.spacing(np.abs(value))
        found = liken(np.array([float(neighbour)]), np.array([float(value)]), 0.0, U32)
        assert found.ulps == pytest.approx(1, rel=0.51), "at a power of two the spacing changes"
    assert spacing(1.0, 0.0, 2.0**-8) == 2.0**-7, "bfloat16 keeps 7 bits"


def test_nan_in_the_same_place_agrees_and_elsewhere_does_not() -> None:
    a = np.array([1.0, np.nan, np.inf, 4.0])
    b = np.array([1.0, np.nan, np.inf, 5.0])
    found = liken(a, b, 1.0, U32)
    assert found.rms == 0.5
    assert found.index == (3,)
    alone = liken(a, np.array([1.0, 2.0, np.inf, 4.0]), 1.0, U32)
    assert (alone.rms, alone.largest, alone.ratio, alone.index) == (None, None, None, (1,))
    assert liken(np.array([np.inf]), np.array([-np.inf]), 1.0, U32).rms is None


def test_zeros_have_no_ratio_and_no_cosine() -> None:
    zero, one = np.zeros(4), np.ones(4)
    assert liken(one, zero, 1.0, U32).ratio is None
    assert liken(one, zero, 1.0, U32).cosine is None
    same = liken(zero, zero, 0.0, U32)
    assert (same.rms, same.largest, same.ulps) == (0.0, 0.0, 0.0)


def test_the_factor_sees_what_all_elements_share() -> None:
    truth = np.random.default_rng(3).standard_normal(4000)
    noise = 1e-4 * np.random.default_rng(4).standard_normal(4000)
    assert factor(truth * (1 + 1e-4), truth, 0.0) == pytest.approx(1e-4, rel=1e-9)
    assert factor(truth + noise, truth, 0.0) < 1e-5, "what is not shared averages out"
    assert factor(np.array([3.0]), np.array([0.0]), 1.0) == 0, "a truth of zero has no factor of its own"
