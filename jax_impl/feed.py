"""Feed: this rank's rows of a step, from the source on the host to the device.

Must not: change a row, or know what it means. Counterpart: `torch_impl/feed.py`.
"""

import jax
import numpy as np
from jax.sharding import PartitionSpec

from jax_impl.parallel import BY_RANK, Ranks
from jax_impl.step import Batch as DeviceBatch
from spec.data.batches import Batch, RowSource, batch_digest, rank_rows
from spec.errors import RuleError
from spec.run import Problem


class Feed:
    """Rows of one rank, or of all where one process holds them.

    Args:
      source: where rows come from.
      cycle: when given, rows of steps [0, cycle) are made once and then repeated, for timing.
    """

    def __init__(self, source: RowSource, problem: Problem, ranks: Ranks, cycle: int | None = None) -> None:
        self._source, self._global_batch = source, problem.global_batch
        self.start, self.stop = rank_rows(problem.global_batch, ranks.rank, ranks.processes)
        self._prepared = None if cycle is None else [self._make(step) for step in range(cycle)]

    def rows(self, step: int) -> Batch:
        """This rank's rows of the global batch of `step`, on the host."""
        return self._make(step) if self._prepared is None else self._prepared[step % len(self._prepared)]

    def global_rows(self, step: int) -> Batch:
        """All rows of the global batch of `step`, on the host."""
        return self._source.rows(step, 0, self._global_batch)

    def digest(self, rows: Batch) -> str:
        """The digest of this rank's rows; over ranks they add up to that of the global batch."""
        return batch_digest(rows, first_row=self.start)

    def _make(self, step: int) -> Batch:
        return self._source.rows(step, self.start, self.stop)


class Stage:
    """Makes this rank's rows its share of a global array on the device, always of the same shapes and dtypes.

    The copy to the device is queued; the host goes on.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._spec: dict[str, tuple[tuple[int, ...], np.dtype]] | None = None

    def __call__(self, rows: Batch) -> DeviceBatch:
        """The rows on the device.

        Raises:
          RuleError: names, shapes or dtypes differ from those of the first call.
        """
        self.check(rows)
        return self.put(rows, BY_RANK)

    def check(self, rows: Batch) -> None:
        """Makes sure that rows are like those of the first call.

        Raises:
          RuleError: names, shapes or dtypes differ.
        """
        spec = {name: (array.shape, array.dtype) for name, array in rows.items()}
        self._spec = self._spec or spec
        if spec != self._spec:
            raise RuleError(
                "Every batch has the names, shapes and dtypes of the first.",
                f"found {spec}, first {self._spec}",
                "pad the rows, or make another trainer",
            )

    def put(self, arrays: Batch, where: PartitionSpec) -> DeviceBatch:
        """This rank's arrays as its share of global ones; the copies are queued."""
        if self._ranks.processes == 1:
            # One call for all arrays takes two thirds of the time of one call each.
            return jax.device_put(arrays, self._ranks.sharding(where))
        return {name: self._ranks.place(array, where) for name, array in arrays.items()}
