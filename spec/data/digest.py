"""Digests of batches that add up: the ranks' digests of their rows sum to the digest of the global batch.

Legend: B rows.
"""

import hashlib
from collections.abc import Iterable

import numpy as np

from spec.weights import raw_bytes

_MASK_U64 = 2**64 - 1


def row_digest_u64(row: dict[str, np.ndarray], index: int) -> int:
    """64-bit hash of a row and its index in the global batch: names, dtypes, shapes and bytes."""
    digest = hashlib.blake2b(index.to_bytes(8, "little"), digest_size=8, person=b"parity-row")
    for name in sorted(row):
        array = np.asarray(row[name])
        digest.update(f"{name} {array.dtype.name} {array.shape} ".encode())
        digest.update(raw_bytes(array))
    return int.from_bytes(digest.digest(), "little")


def batch_digest(batch: dict[str, np.ndarray], first_row: int) -> str:
    """Sum of the row digests modulo 2**64, as 16 hex digits.

    Args:
      batch: arrays with rows first, all of B rows.
      first_row: index of the first of these rows in the global batch.
    """
    num_rows = {len(array) for array in batch.values()}
    assert len(num_rows) == 1, {name: array.shape for name, array in batch.items()}
    total = sum(
        row_digest_u64({name: array[i] for name, array in batch.items()}, first_row + i)
        for i in range(num_rows.pop())
    )
    return f"{total & _MASK_U64:016x}"


def add_digests(digests: Iterable[str]) -> str:
    """The digest of all rows together, from the digests of disjoint parts of a batch."""
    return f"{sum(int(digest, 16) for digest in digests) & _MASK_U64:016x}"
