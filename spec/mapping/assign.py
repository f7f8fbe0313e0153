"""Pairs two lists at the least total cost: the Hungarian method with shortest augmenting paths, O(n^3).

After Jonker and Volgenant (Computing 38, 1987). Must not: know what is paired.
"""

import numpy as np

IMPOSSIBLE = 1e9
"""The cost of a pair that must not be."""


def assign(cost_NM: np.ndarray) -> list[tuple[int, int]]:
    """(row, column) of each pair, in the order of rows; as many as the shorter list, less the impossible.

    Args:
      cost_NM: finite, not negative; `IMPOSSIBLE` or more where a pair must not be.
    """
    if not cost_NM.size:
        return []
    if cost_NM.shape[0] > cost_NM.shape[1]:
        return sorted((row, column) for column, row in assign(cost_NM.T))
    owners = _owners(np.asarray(cost_NM, np.float64))
    pairs = sorted((int(row), column) for column, row in enumerate(owners) if row >= 0)
    return [(row, column) for row, column in pairs if cost_NM[row, column] < IMPOSSIBLE]


def _owners(cost_NM: np.ndarray) -> np.ndarray:
    """The row of each column, -1 for none; no more rows than columns."""
    rows, columns = cost_NM.shape
    row_price, column_price = np.zeros(rows), np.zeros(columns + 1)
    owners, source = np.full(columns + 1, -1), np.zeros(columns + 1, np.int64)
    for row in range(rows):
        # The extra column holds the row that looks for a place.
        owners[columns], here = row, columns
        shortest, done = np.full(columns, np.inf), np.zeros(columns + 1, bool)
        while owners[here] >= 0:
            done[here] = True
            owner = owners[here]
            reduced = cost_NM[owner] - row_price[owner] - column_price[:columns]
            better = ~done[:columns] & (reduced < shortest)
            shortest[better], source[:columns][better] = reduced[better], here
            following = int(np.where(done[:columns], np.inf, shortest).argmin())
            step = shortest[following]
            row_price[owners[done]] += step
            column_price[done] -= step
            shortest[~done[:columns]] -= step
            here = following
        while here != columns:
            owners[here] = owners[source[here]]
            here = source[here]
    return owners[:columns]
