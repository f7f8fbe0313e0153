"""Rows of a batch as one array a dtype: a copy to the device costs the host about 0.1 ms, however small.

Must not: change a value. A stock step is given its fields one by one, as users do; see `jax_impl/feed.py`.
"""

import math
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from jax_impl.feed import Stage
from jax_impl.parallel import BY_RANK, Ranks
from spec.data.batches import Batch
from spec.data.folder import check_vocabulary

_Field = tuple[str, tuple[int, ...]]
"""Name of a field, and its shape without the rows."""


class Packing:
    """Which fields lie where, learnt from the first batch."""

    def __init__(self) -> None:
        self._fields: dict[str, list[_Field]] = {}

    def pack(self, rows: Batch) -> Batch:
        """Arrays (rows, columns) by dtype."""
        if not self._fields:
            for name, array in rows.items():
                self._fields.setdefault(array.dtype.name, []).append((name, array.shape[1:]))
        return {
            dtype: np.concatenate([rows[name].reshape(len(rows[name]), -1) for name, _ in fields], axis=1)
            for dtype, fields in self._fields.items()
        }

    def unpack(self, packed: dict[str, Any]) -> dict[str, Any]:
        """The fields again, inside a trace too."""
        found = {}
        for dtype, fields in self._fields.items():
            start = 0
            for name, shape in fields:
                stop = start + math.prod(shape)
                found[name] = packed[dtype][:, start:stop].reshape(-1, *shape)
                start = stop
        return found


class PackedStage(Stage):
    """Puts rows on the device in one copy a dtype.

    Args:
      vocab: of the model, where its rows are tokens.
    """

    def __init__(self, ranks: Ranks, vocab: int | None) -> None:
        super().__init__(ranks)
        self.packing, self._vocab = Packing(), vocab

    def check(self, rows: Batch) -> None:
        """As for unpacked rows, and every token lies in the vocabulary, if one is given."""
        super().check(rows)
        if self._vocab is not None:
            check_vocabulary(rows, self._vocab)

    def __call__(self, rows: Batch) -> dict[str, jax.Array]:
        """The packed rows on the device.

        Raises:
          RuleError: names, shapes or dtypes differ from those of the first call, or a token is out of range.
        """
        self.check(rows)
        return self.put(self.packing.pack(rows), BY_RANK)

    def put(self, arrays: Batch, where: PartitionSpec) -> dict[str, jax.Array]:
        """As for unpacked rows, in less of the host's time."""
        return {name: self._ranks.put(array, where) for name, array in arrays.items()}
