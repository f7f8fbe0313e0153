"""Ranks: which process this is, its device, and the one reduction of a step.

One process a device, started by torchrun on one host or several; NCCL between GPUs, gloo between CPUs. A run
of one process needs neither. Must not: know what is reduced. Counterpart: `jax_impl/parallel.py`.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from spec.errors import RuleError
from spec.run import Execution
from spec.worker import launcher
from torch_impl.graph import communicator, teardown


@dataclass(frozen=True)
class Ranks:
    """This process among all processes of the run."""

    rank: int
    world_size: int
    local_rank: int
    device: torch.device

    def all_reduce(self, flat: Tensor) -> None:
        """Sums a buffer over all ranks, in place."""
        if self.world_size > 1:
            dist.all_reduce(flat)

    def broadcast(self, flat: Tensor) -> None:
        """Gives every rank rank 0's values, in place."""
        if self.world_size > 1:
            dist.broadcast(flat, src=0)

    def gather(self, values: Tensor) -> list[Tensor]:
        """Every rank's values, in the order of ranks, on every rank; all have one shape and dtype."""
        if self.world_size == 1:
            return [values]
        gathered = [torch.empty_like(values) for _ in range(self.world_size)]
        dist.all_gather(gathered, values.contiguous())
        return gathered

    def barrier(self) -> None:
        """Waits until every rank is here."""
        if self.world_size > 1:
            dist.barrier()

    def synchronize(self) -> None:
        """Waits until this process's device is idle; a CPU has finished when a call returns."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def fence(self) -> None:
        """Waits until every rank is here with an idle device."""
        self.synchronize()
        self.barrier()
        self.synchronize()

    def close(self) -> None:
        """Ends the process group, captured graphs first; to be called on every way out."""
        teardown.close_graphs()
        if dist.is_initialized():
            dist.destroy_process_group()


def join(execution: Execution) -> Ranks:
    """Joins the processes that torchrun started; alone, where it did not.

    Raises:
      RuleError: as many processes were not started, torchrun's variables are no numbers, or a process finds
        no GPU of its own.
    """
    rank, local_rank = launcher.number("RANK", 0), launcher.number("LOCAL_RANK", 0)
    world_size = launcher.number("WORLD_SIZE", 1, least=1)
    if world_size != execution.world_size:
        raise RuleError(
            "As many processes run as the run has devices.",
            f"{world_size} started, {execution.world_size} asked for",
            f"start with torchrun --nproc-per-node {execution.world_size}",
        )
    device = _device(execution.device, local_rank)
    ranks = Ranks(rank, world_size, local_rank, device)
    if world_size > 1 and not dist.is_initialized():
        if device.type == "cuda":
            communicator.prepare_environment()
            dist.init_process_group("nccl", device_id=device)
        else:
            dist.init_process_group("gloo")
    return ranks


def _device(kind: str, local_rank: int) -> torch.device:
    """The device of a process on its host: GPU `local_rank`, or the CPU."""
    if kind == "cpu":
        return torch.device("cpu")
    num_gpus = torch.cuda.device_count()
    num_processes = launcher.number("LOCAL_WORLD_SIZE", 1, least=1)
    if num_processes > num_gpus:
        raise RuleError(
            "Every process has a GPU of its own.",
            f"{num_processes} processes on this host, {num_gpus} GPUs seen by torch {torch.__version__}",
            "start fewer processes, or take --device cpu",
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device
