"""Two rings in pinned memory between host and graph: batches in, metrics out, with no CUDA call for either.

Step number `tick` reads slot (tick mod slots) of the input ring in its first kernel; its last kernel writes
the metrics under sequence number tick + 1. The host knows from the sequence number which slots are free
again, so it neither overtakes the device nor takes an old value for a new one. Must not: launch anything.
"""

import struct
import time
from collections.abc import Callable
from typing import Any

import torch

from torch_impl.graph.layout import BatchLayout, RowWriter
from torch_impl.graph.mapped import MappedRows

WORD_BYTES = 8
SPIN_S = 200e-6
"""How long the host spins before it begins to sleep between looks."""
SLEEP_S = 20e-6


class InputRing:
    """Slots for batches of one layout, written by the host in turn.

    Args:
      layout: of every batch.
      num_slots: batches that can wait on the device at one time.
    """

    launches_per_write = 0
    """A store of the host's launches nothing."""

    def __init__(self, layout: BatchLayout, num_slots: int, device: torch.device) -> None:
        self.layout, self.num_slots = layout, num_slots
        self._rows = MappedRows(num_slots, layout.row_bytes, device)
        self._writers = [RowWriter(layout, row) for row in self._rows.host]
        self.slots = self._rows.device
        """(num_slots, row_bytes) uint8, as the device sees them."""

    def write(self, tick: int, batch: Any) -> None:
        """Writes the batch of step `tick`; the step that read the slot before must be over.

        Raises:
          RuleError: the batch does not fit.
        """
        self._writers[tick % self.num_slots].write(batch)


class MetricsRing:
    """The last `num_slots` steps' metrics, each word beside the sequence number it belongs to.

    Args:
      num_values: metrics of a step.
      dtype: float32 or float64.
      stalled: called when nothing came for `stall_s`; it should raise what ails the device.
    """

    def __init__(
        self,
        num_values: int,
        dtype: torch.dtype,
        num_slots: int,
        device: torch.device,
        stalled: Callable[[], None] = lambda: None,
        stall_s: float = 60.0,
    ) -> None:
        assert dtype in (torch.float32, torch.float64), dtype
        self._format = f"<{num_values}{'f' if dtype == torch.float32 else 'd'}"
        self.num_slots, self._stalled, self._stall_s = num_slots, stalled, stall_s
        self._num_words = num_values * dtype.itemsize // 4
        self._rows = MappedRows(num_slots, self._num_words * WORD_BYTES, device)
        # A memory view reads one word in one load; every look goes to memory.
        self._words = memoryview(self._rows.host.view(-1).numpy().data).cast("Q")
        self.slots = self._rows.device.view(torch.int64)
        """(num_slots, words) int64, as the device sees them: value in the high half, sequence in the low."""

    def read(self, sequence: int) -> list[float]:
        """Metrics of one step; waits for them.

        Raises:
          LookupError: newer steps have written over them.
          RuntimeError: they did not come, though the device has nothing left to do.
        """
        assert sequence > 0, "sequence numbers begin at 1; 0 marks a slot that was never written"
        first = sequence % self.num_slots * self._num_words
        for last in (first, first + self._num_words - 1):
            self._wait(last, sequence)
        words = self._words[first : first + self._num_words]
        while any(ahead := [_ahead(word, sequence) for word in words]):
            if any(distance > 0 for distance in ahead):
                raise LookupError(f"step {sequence} was written over: the ring keeps {self.num_slots} steps")
            words = self._words[first : first + self._num_words]
        halves = struct.pack(f"<{self._num_words}I", *(word >> 32 for word in words))
        return list(struct.unpack(self._format, halves))

    def wait(self, sequence: int) -> None:
        """Returns once the step is over; at once where a newer one has written over it."""
        self._wait(sequence % self.num_slots * self._num_words, sequence)

    def over(self, sequence: int) -> bool:
        """Whether the step is over, or older than what the ring holds."""
        return _ahead(self._words[sequence % self.num_slots * self._num_words], sequence) >= 0

    def forget(self) -> None:
        """Takes every sequence number out; for when the device's counter was put back."""
        self._rows.host.zero_()

    def _wait(self, index: int, sequence: int) -> None:
        """Until word `index` carries the sequence number or a later one."""
        if _ahead(self._words[index], sequence) >= 0:
            return
        started = last_look = time.perf_counter()
        while _ahead(self._words[index], sequence) < 0:
            now = time.perf_counter()
            if now - started > SPIN_S:
                time.sleep(SLEEP_S)
            if now - last_look > self._stall_s:
                last_look = now
                self._stalled()
                if _ahead(self._words[index], sequence) < 0:
                    raise RuntimeError(f"the device is idle, and step {sequence} has left no metrics")


def _ahead(word: int, sequence: int) -> int:
    """How far the low half of a word is ahead of a sequence number, modulo 2**32, as a signed number."""
    return ((word - sequence + 0x80000000) & 0xFFFFFFFF) - 0x80000000
