"""The communicator that graphs own, apart from the one of everything else, and the variables NCCL reads for
it.

A communicator whose kernels lie in a live graph must see no eager call: without NCCL's graph mixing, which
would put event nodes into the graph, nothing orders the two. Must not: be used once a graph holds it, but
by that graph.
"""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def prepare_environment() -> dict[str, str]:
    """Sets what NCCL reads at its first communicator, where the user has not; what was set, with values.

    Mixing off leaves a graph's all-reduce a kernel among kernels. Buffers that NCCL registers for a graph and
    torch's expandable segments do not go together (illegal accesses or a hang), so registration is off with
    them.
    """
    wanted = {"NCCL_GRAPH_MIXING_SUPPORT": "0"}
    allocator = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") + os.environ.get("PYTORCH_ALLOC_CONF", "")
    if "expandable_segments:True" in allocator:
        wanted["NCCL_GRAPH_REGISTER"] = "0"
    return {name: os.environ.setdefault(name, value) for name, value in wanted.items()}


class Communicator:
    """A process group of all ranks for graphs alone; on one process it does nothing."""

    def __init__(self, device: torch.device) -> None:
        self._group: Any = None
        if dist.is_initialized() and dist.get_world_size() > 1:
            self._group = dist.new_group()
            # Made, and its channels set up, while every rank is here; a capture cannot do that.
            self.all_reduce(torch.zeros(1, device=device))
            torch.cuda.synchronize(device)

    def all_reduce(self, flat: Tensor) -> None:
        """Sums over all ranks in place, on the current stream."""
        if self._group is not None:
            dist.all_reduce(flat, group=self._group)

    def close(self) -> None:
        """Ends it; every graph that holds it must be gone."""
        if self._group is not None and dist.is_initialized():
            dist.destroy_process_group(self._group)
        self._group = None
