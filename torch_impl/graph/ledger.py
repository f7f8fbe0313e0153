"""Ledger: every address that a captured graph has baked in, by name.

A graph goes on reading and writing the addresses it was captured with, whatever Python names point at
later, so a replaced parameter would train unseen. Must not: mend; a moved pointer is named and the caller
decides.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from spec.errors import RuleError, few


@dataclass(frozen=True)
class Entry:
    """Where a tensor lay at capture."""

    address: int
    num_bytes: int
    shape: tuple[int, ...]
    dtype: str


class Ledger:
    """Addresses at capture, and whether they still hold.

    Args:
      current: gives the tensors by name as they are reached now, every time anew.
    """

    def __init__(self, current: Callable[[], dict[str, Tensor]]) -> None:
        self._current = current
        self.entries = {name: _entry(tensor) for name, tensor in current().items()}

    def moved(self) -> list[str]:
        """What is no longer where it was, in words."""
        now = {name: _entry(tensor) for name, tensor in self._current().items()}
        found = []
        for name in sorted(self.entries.keys() | now.keys()):
            before, after = self.entries.get(name), now.get(name)
            if before is None:
                found.append(f"{name} is new")
            elif after is None:
                found.append(f"{name} is gone")
            elif before != after:
                found.append(f"{name} was {_words(before)}, now {_words(after)}")
        return found

    def check(self) -> None:
        """Makes sure that every pointer still holds.

        Raises:
          RuleError: something moved, named.
        """
        moved = self.moved()
        if moved:
            raise RuleError(
                "What a captured graph reads and writes stays where it is.",
                few(moved),
                "write values in place (tensor.copy_), or capture again",
            )

    def num_bytes(self) -> int:
        """Bytes of distinct memory in the ledger; views of one buffer count once."""
        total, end = 0, 0
        for start, stop in sorted((e.address, e.address + e.num_bytes) for e in self.entries.values()):
            total += max(0, stop - max(start, end))
            end = max(end, stop)
        return total


def _entry(tensor: Tensor) -> Entry:
    shape = tuple(tensor.shape)
    return Entry(tensor.data_ptr(), tensor.nbytes, shape, str(tensor.dtype).removeprefix("torch."))


def _words(entry: Entry) -> str:
    return f"{entry.dtype} {entry.shape} at {entry.address:#x}"
