"""Feed: this rank's rows of a step, from the source on the host to the device.

Must not: change a row, or know what it means. Counterpart: `jax_impl/feed.py`.
"""

import numpy as np
import torch

from spec.data.batches import Batch, RowSource, batch_digest, rank_rows
from spec.errors import RuleError
from spec.run import Problem
from torch_impl.parallel import Ranks
from torch_impl.step import Batch as DeviceBatch

_NUM_SLOTS = 2
"""Pinned buffers of a batch: one is filled while the device may still read the other."""


class Feed:
    """Rows of one rank.

    Args:
      source: where rows come from.
      cycle: when given, rows of steps [0, cycle) are made once and then repeated, for timing.
    """

    def __init__(self, source: RowSource, problem: Problem, ranks: Ranks, cycle: int | None = None) -> None:
        self._source, self._global_batch = source, problem.global_batch
        self.start, self.stop = rank_rows(problem.global_batch, ranks.rank, ranks.world_size)
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
    """Puts host rows on the device, every time at the same shapes and dtypes.

    On a GPU through pinned buffers, so that the copy is queued and the host goes on; on a CPU the rows are
    used where they lie.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._device = ranks.device
        self._spec: dict[str, tuple[tuple[int, ...], np.dtype]] | None = None
        self._slots: list[tuple[DeviceBatch, torch.cuda.Event]] = []
        self._next = 0

    def __call__(self, rows: Batch) -> DeviceBatch:
        """The rows on the device.

        Raises:
          RuleError: names, shapes or dtypes differ from those of the first call.
        """
        spec = {name: (array.shape, array.dtype) for name, array in rows.items()}
        self._spec = self._spec or spec
        if spec != self._spec:
            raise RuleError(
                "Every batch has the names, shapes and dtypes of the first.",
                f"found {spec}, first {self._spec}",
                "pad the rows, or make another trainer",
            )
        host = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in rows.items()}
        return host if self._device.type == "cpu" else self._through_pinned(host)

    def _through_pinned(self, host: DeviceBatch) -> DeviceBatch:
        if len(self._slots) < _NUM_SLOTS:
            pinned = {name: values.pin_memory() for name, values in host.items()}
            self._slots.append((pinned, torch.cuda.Event()))
        pinned, copied = self._slots[self._next]
        self._next = (self._next + 1) % _NUM_SLOTS
        # The copy out of this buffer that was queued _NUM_SLOTS steps ago must be over.
        copied.synchronize()
        for name, values in host.items():
            pinned[name].copy_(values)
        batch = {name: values.to(self._device, non_blocking=True) for name, values in pinned.items()}
        copied.record()
        return batch
