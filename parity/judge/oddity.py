"""Where one side alone is NaN or infinite, in words: how many elements, and in which rows.

Such a difference has no size, so it is told by its places. Must not: judge.
"""

import numpy as np

from parity.judge.measures import not_finite

_MOST_ROWS = 8


def tell(a: np.ndarray, b: np.ndarray, labels: tuple[str, str]) -> str:
    """`torch alone is NaN or infinite in 54 of 144 elements, all of row 2, some of rows 1, 3`; or empty.

    Rows are those of the first axis. Infinities of opposite sign, and NaN against infinity, are told of both.
    """
    _, odd = not_finite(a, b)
    if not odd.any():
        return ""
    alone = [bool(np.isfinite(other[odd]).all()) for other in (b, a)]
    who = " alone is" if any(alone) else "the sides are not alike where they are"
    who = f"{labels[alone.index(True)]}{who}" if any(alone) else who
    words = f"{who} NaN or infinite in {int(odd.sum())} of {odd.size} elements"
    if odd.ndim < 2 or len(odd) < 2:
        return words
    by_row = odd.reshape(len(odd), -1)
    whole = by_row.all(1)
    if whole.all():
        return words
    parts = [("all", np.flatnonzero(whole)), ("some", np.flatnonzero(by_row.any(1) & ~whole))]
    return ", ".join([words, *(f"{share} of {_named(rows)}" for share, rows in parts if len(rows))])


def _named(rows: np.ndarray) -> str:
    """`row 2`, `rows 1, 3`."""
    named = ", ".join(map(str, rows[:_MOST_ROWS])) + (", ..." if len(rows) > _MOST_ROWS else "")
    return f"row{'s' if len(rows) > 1 else ''} {named}"
