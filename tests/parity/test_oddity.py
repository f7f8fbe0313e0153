"""Differences that have no size are told by their places."""

import numpy as np

from parity.judge.likeness import liken
from parity.judge.measures import rms
from parity.judge.oddity import tell

BOTH = ("torch", "jax")


def test_rows_are_named_where_one_side_alone_is_not_finite() -> None:
    finite = np.zeros((4, 3, 2))
    odd = finite.copy()
    odd[2], odd[1, 0, 0], odd[3, 2, 1] = np.nan, -np.inf, np.inf
    found = "is NaN or infinite in 8 of 24 elements, all of row 2, some of rows 1, 3"
    assert tell(odd, finite, BOTH) == f"torch alone {found}"
    assert tell(finite, odd, BOTH) == f"jax alone {found}"


def test_what_both_have_alike_is_no_difference() -> None:
    odd = np.array([np.nan, np.inf, 1.0])
    assert tell(odd, odd, BOTH) == "" == tell(np.ones(3), np.zeros(3), BOTH)


def test_opposite_infinities_are_of_both() -> None:
    one, other = np.array([np.inf, 0.0]), np.array([-np.inf, 0.0])
    assert (
        tell(one, other, BOTH) == "the sides are not alike where they are NaN or infinite in 1 of 2 elements"
    )


def test_a_number_and_a_whole_tensor_name_no_row() -> None:
    assert tell(np.array(np.nan), np.array(1.0), BOTH) == "torch alone is NaN or infinite in 1 of 1 elements"
    assert tell(np.full((2, 2), np.nan), np.zeros((2, 2)), BOTH).endswith("4 of 4 elements")


def test_numbers_whose_squares_overflow_are_measured_without_a_warning() -> None:
    least, other = np.full(4, np.finfo(np.float64).min), np.zeros(4)
    found = liken(least, other, 1.0, 2.0**-53)
    assert found.rms == np.inf == rms(least) and found.largest == 1.0
