"""Large inputs: a copy stream brings them to slots on the device while the step before still runs.

Kernels would read a large batch over the bus at the start of the step, and nothing would overlap. Here the
host queues a copy and the launch waits for it on the device: two further calls for a step, which are
counted. Batches that lie on the device already are copied there too. Must not: be used for what a kernel
reads in a few microseconds.
"""

from typing import Any

import torch

from torch_impl.graph.layout import BatchLayout, RowWriter


class StagedRing:
    """Slots on the device, each with a pinned row on the host.

    Args:
      layout: of every batch.
      num_slots: batches that can wait at one time.
      stream: the stream on which steps are launched.
    """

    launches_per_write = 1
    """Copies that put work on the device for one batch from the host."""

    def __init__(self, layout: BatchLayout, num_slots: int, stream: torch.cuda.Stream) -> None:
        self.layout, self.num_slots, self._stream = layout, num_slots, stream
        self._host = torch.zeros(num_slots, layout.row_bytes, dtype=torch.uint8, pin_memory=True)
        self.slots = torch.zeros(num_slots, layout.row_bytes, dtype=torch.uint8, device=stream.device)
        """(num_slots, row_bytes) uint8 on the device."""
        self._writers = [RowWriter(layout, row) for row in self._host]
        self._views = [[leaf.view(row) for leaf in layout.leaves] for row in self.slots]
        self._copies = torch.cuda.Stream(stream.device)
        self._copied = torch.cuda.Event()

    def write(self, tick: int, batch: Any) -> None:
        """Writes the batch of step `tick`; the step that read the slot before must be over.

        Raises:
          RuleError: the batch does not fit.
        """
        slot = tick % self.num_slots
        values = self.layout.collect(batch)
        if any(isinstance(value, torch.Tensor) and value.is_cuda for value in values):
            if self.layout.misfit(batch):
                self.layout.refuse(batch)
            self._copies.wait_stream(torch.cuda.current_stream(self._stream.device))
            with torch.cuda.stream(self._copies):
                for view, value in zip(self._views[slot], values, strict=True):
                    view.copy_(torch.as_tensor(value), non_blocking=True)
                    if isinstance(value, torch.Tensor) and value.is_cuda:
                        value.record_stream(self._copies)
        else:
            self._writers[slot].write(batch)
            with torch.cuda.stream(self._copies):
                self.slots[slot].copy_(self._host[slot], non_blocking=True)
        self._copied.record(self._copies)
        self._stream.wait_event(self._copied)
