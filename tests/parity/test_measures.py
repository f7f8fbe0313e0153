"""Differences of two arrays against formulas worked out by hand."""

import math

import numpy as np
import pytest

from parity.judge.curves import relative_difference
from parity.judge.measures import measure, rms, scale


def test_rms_difference_and_worst_element() -> None:
    a = np.array([[3.0, 4.0], [0.0, 0.0]])
    b = np.array([[3.0, 4.0], [0.0, 1.0]])
    s = scale(a, b, group_rms=0.0)
    assert s == pytest.approx(math.sqrt(26 / 4))
    found = measure(a, b, s)
    assert found.rms_rel == pytest.approx(0.5 / s)
    assert found.max_abs == 1.0
    assert found.max_rel == pytest.approx(1.0 / s)
    assert found.index == (1, 1)
    assert (found.a, found.b) == (0.0, 1.0)


def test_the_worst_element_is_relative_to_itself_where_it_is_large() -> None:
    a = np.array([100.0, 1.0, 1.0, 1.0])
    found = measure(a, a + np.array([1.0, 0.9, 0.0, 0.0]), s=1.0)
    assert found.index == (1,)
    assert found.max_rel == pytest.approx(0.9 / 1.9)


def test_a_tiny_tensor_is_measured_against_its_group() -> None:
    a, b = np.full(3, 1e-12), np.full(3, 2e-12)
    assert scale(a, b, group_rms=1.0) == 1e-6
    assert measure(a, b, 1e-6).rms_rel == pytest.approx(1e-6)


def test_spikes_are_left_out_of_the_rms_and_seen_at_the_worst_element() -> None:
    a, b = np.zeros(200), np.full(200, 1e-6)
    b[[3, 50]] = 0.5
    found = measure(a, b, 1.0, spikes=0.01)
    assert found.rms_rel == pytest.approx(1e-6)
    assert (found.max_rel, found.index) == (0.5, (3,))
    assert measure(a, b, 1.0).rms_rel == pytest.approx(0.05)


def test_of_one_element_none_is_left_out() -> None:
    assert measure(np.zeros(1), np.ones(1), 1.0, spikes=0.01).rms_rel == 1.0


def test_where_nothing_can_have_moved_nothing_may_differ() -> None:
    found = measure(np.zeros(2), np.full(2, 1e-12), s=0.0)
    assert found.rms_rel is not None
    assert found.rms_rel > 1e50


def test_nothing_differs_from_nothing() -> None:
    found = measure(np.zeros(4), np.zeros(4), s=0.0)
    assert (found.rms_rel, found.max_rel, found.max_abs) == (0.0, 0.0, 0.0)


def test_not_finite_on_both_sides_alike_is_counted_and_left_out() -> None:
    a = np.array([np.nan, np.inf, -np.inf, 1.0])
    found = measure(a, a + np.array([0.0, 0.0, 0.0, 0.5]), s=1.0)
    assert found.both_not_finite == 3
    assert found.max_abs == 0.5
    assert found.index == (3,)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_not_finite_on_one_side_has_no_measure_but_a_place(odd: float) -> None:
    a, b = np.ones(5), np.ones(5)
    b[2] = odd
    for found in (measure(a, b, 1.0), measure(b, a, 1.0)):
        assert (found.rms_rel, found.max_rel, found.index) == (None, None, (2,))


def test_infinities_of_other_sign_differ() -> None:
    assert measure(np.array([np.inf]), np.array([-np.inf]), 1.0).rms_rel is None


def test_rms_leaves_out_what_is_not_finite() -> None:
    assert rms(np.array([3.0, np.nan, 4.0, np.inf])) == pytest.approx(math.sqrt(12.5))
    assert rms(np.array([np.nan])) == 0.0


def test_curves_are_relative_step_by_step() -> None:
    nan, inf = np.nan, np.inf
    a = np.array([2.0, 0.0, nan, nan, inf, -1.0])
    b = np.array([1.0, 0.0, nan, 1.0, inf, 1.0])
    assert relative_difference(a, b).tolist() == [0.5, 0.0, 0.0, inf, 0.0, 2.0]
