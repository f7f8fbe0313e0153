"""Pinned host memory that kernels reach over the bus, as one tensor on each side.

Under unified addressing a pinned allocation has the same address on host and device, so no copy and no call
stands between the host's store and a kernel's load. Must not: order anything; whoever reads and writes does.
"""

import torch
from torch import Tensor


class MappedRows:
    """Rows of bytes in pinned memory, starting at zero.

    Args:
      num_rows: rows.
      row_bytes: bytes of a row.
      device: the GPU that is to reach it; a CPU sees the one memory anyhow.
    """

    def __init__(self, num_rows: int, row_bytes: int, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self.host = torch.zeros(num_rows, row_bytes, dtype=torch.uint8, pin_memory=on_gpu)
        """(num_rows, row_bytes) uint8, written and read by the host."""
        self.device = torch.as_tensor(_CudaView(self.host), device=device) if on_gpu else self.host
        """The same bytes as a tensor of the device."""
        assert self.device.data_ptr() == self.host.data_ptr(), "pinned memory has one address on both sides"


class _CudaView:
    """What torch asks an array for before it takes its memory as CUDA memory."""

    def __init__(self, pinned: Tensor) -> None:
        self._pinned = pinned
        self.__cuda_array_interface__ = {
            "shape": tuple(pinned.shape),
            "typestr": "|u1",
            "data": (pinned.data_ptr(), False),
            "version": 3,
        }
