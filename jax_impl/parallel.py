"""Ranks: which process this is, its device among all, and the one reduction of a step.

One process a device, on one host or several, joined by `jax.distributed`, or one process for all devices of
a host; NCCL between GPUs, gloo between CPUs. A step is written for one rank and spread over the mesh with
`jax.shard_map`, so that what is local and what is summed is said in the step. Left to the partitioner,
gradients would be reduced in every micro-batch. Must not: know what is reduced. Counterpart:
`torch_impl/parallel.py`.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import numpy as np
from jax import dtypes, lax
from jax._src import distributed
from jax._src.interpreters import pxla
from jax.experimental import multihost_utils
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_impl.xla import compilations, watch
from spec.errors import RuleError
from spec.run import Execution

_AXIS = "data"

REPLICATED = PartitionSpec()
"""The same values on every rank."""

BY_RANK = PartitionSpec(_AXIS)
"""Rank r holds the r-th share of the first axis."""

_HEARTBEAT_TIMEOUT_S = 10
"""A rank that is silent for so long has ended, and ends the others, for which gloo would wait for ever. A
thread of its own speaks for a rank, whatever it computes."""

Tree = TypeVar("Tree")


@dataclass(frozen=True)
class Ranks:
    """This process among all processes of the run."""

    rank: int
    world_size: int
    local_rank: int
    mesh: Mesh
    """The devices of all ranks in their order, along one axis."""

    def all_reduce(self, *trees: Any) -> tuple[Any, ...]:
        """Inside a spread step: sums all leaves, which have one dtype, over all ranks.

        The leaves of a tree become one flat buffer. XLA would reduce them in one operation too, but gloo then
        sends them one by one: measured 50 ms instead of 4 for 28 leaves and two processes. What is given as
        a tree of its own is not copied together with others.
        """
        if self.world_size == 1:
            return trees
        flat, unflatten = zip(*(ravel_pytree(tree) for tree in trees), strict=True)
        return tuple(back(sums_N) for back, sums_N in zip(unflatten, lax.psum(flat, _AXIS), strict=True))

    def own(self, tree: Tree) -> Tree:
        """Inside a spread step: marks replicated values as this rank's own, their gradients with them.

        The gradient of a replicated value is a sum over ranks, and JAX would sum it in every micro-batch.
        """
        if self.world_size == 1:
            return tree
        return jax.tree.map(lambda leaf: lax.pcast(leaf, _AXIS, to="varying"), tree)

    def spread(self, step: Callable[..., Any], inputs: Any, outputs: Any) -> Callable[..., Any]:
        """Makes a program of one rank into one of global arrays.

        JAX checks on the way that what `outputs` calls replicated was reduced.

        Args:
          inputs, outputs: for each argument and result, a tree of `REPLICATED` and `BY_RANK`.
        """
        if self.world_size == 1:
            return step
        return jax.shard_map(step, mesh=self.mesh, in_specs=inputs, out_specs=outputs)

    @property
    def processes(self) -> int:
        """Processes of the run: one a rank, or one for all."""
        return self.world_size // len(self.mesh.local_devices)

    @property
    def device(self) -> jax.Device:
        """This process's device, the first of several."""
        return self.mesh.local_devices[0]

    def sharding(self, where: PartitionSpec) -> NamedSharding:
        """`REPLICATED` or `BY_RANK` on this mesh."""
        return NamedSharding(self.mesh, where)

    def place(self, array: np.ndarray, where: PartitionSpec) -> jax.Array:
        """A global array out of what this rank holds of it: all of it, or its share of the first axis."""
        return jax.make_array_from_process_local_data(self.sharding(where), array)

    def put(self, array: np.ndarray, where: PartitionSpec) -> jax.Array:
        """What `place` does, for what is put on the device in every step; the axis of ranks is split.

        It queues the copy and leaves out what JAX's own checks take: on an H200's host 18 us instead of 117,
        and a step of micro lasts 0.85 ms instead of 1.01 (`benchmarks/results/jax_step`, run e).
        """
        array = array.astype(dtypes.canonicalize_dtype(array.dtype), copy=False)
        axis, devices = where.index(_AXIS), self.mesh.local_devices
        shape = list(array.shape)
        shape[axis] *= self.processes
        aval = jax.core.ShapedArray(tuple(shape), array.dtype)
        return pxla.batched_device_put(
            aval, self.sharding(where), np.split(array, len(devices), axis), devices
        )

    def broadcast(self, tree: Tree) -> Tree:
        """Rank 0's values of a tree of host arrays, on every rank."""
        if self.processes == 1:
            return tree
        with compilations.apart(), watch.waiting():
            return multihost_utils.broadcast_one_to_all(tree)

    def gather(self, values: np.ndarray) -> list[np.ndarray]:
        """Every rank's values, in the order of ranks, on every rank; all have one shape and dtype."""
        return list(multihost_utils.process_allgather(values)) if self.world_size > 1 else [values]

    def barrier(self) -> None:
        """Waits until every rank is here."""
        if self.processes > 1:
            with compilations.apart(), watch.waiting():
                multihost_utils.sync_global_devices("barrier")

    def synchronize(self, arrays: Any) -> None:
        """Waits until the arrays of a tree are computed; JAX has no call that waits for a device."""
        with watch.waiting():
            jax.block_until_ready(arrays)

    def fence(self, arrays: Any) -> None:
        """Waits until every rank is here with its arrays computed."""
        self.synchronize(arrays)
        self.barrier()

    def close(self) -> None:
        """Leaves the group of processes once all are done; to be called where they ended well."""
        watch.stop()
        if jax.distributed.is_initialized():
            jax.distributed.shutdown()

    def abandon(self, code: int) -> None:
        """Ends this process where it failed among others; returns where it is alone.

        Leaving in good order would wait for ranks that wait for this one in a collective. Its silence ends
        them, see `_HEARTBEAT_TIMEOUT_S`.
        """
        if self.world_size > 1:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def join(execution: Execution) -> Ranks:
    """Joins the processes that the environment names; alone, where it names none.

    Reads JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID and JAX_LOCAL_DEVICE_IDS. To be called
    after `runtime.configure` and before the first array.

    Raises:
      RuleError: as many processes were not started, or a process has not one device of its own.
    """
    processes, rank, device_ids = _environment()
    world_size = execution.world_size
    if processes != (1 if execution.jax_one_process else world_size):
        raise RuleError(
            "As many processes run as the run has devices, or one for all where that is asked for.",
            f"{processes} started, {world_size} devices asked for",
            "set JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID, one process a device",
        )
    if processes > 1 and not jax.distributed.is_initialized():
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        address = os.environ["JAX_COORDINATOR_ADDRESS"]
        jax.distributed.initialize(
            address,
            world_size,
            rank,
            local_device_ids=device_ids,
            heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT_S,
        )
        watch.start(distributed.global_state.client, rank, world_size, execution.stall_s)
    mesh = _mesh(execution.device, world_size, processes)
    return Ranks(rank, world_size, device_ids[0] if device_ids else 0, mesh)


def _environment() -> tuple[int, int, list[int] | None]:
    """World size, rank, and the devices of this host that are this process's."""
    try:
        world_size = int(os.environ.get("JAX_NUM_PROCESSES", "1"))
        rank = int(os.environ.get("JAX_PROCESS_ID", "0"))
        ids = os.environ.get("JAX_LOCAL_DEVICE_IDS")
        device_ids = [int(number) for number in ids.split(",")] if ids else None
    except ValueError as error:
        raise RuleError(
            "JAX_NUM_PROCESSES, JAX_PROCESS_ID and JAX_LOCAL_DEVICE_IDS are numbers.", str(error)
        ) from None
    if not 0 <= rank < world_size:
        raise RuleError(
            "Processes are numbered from 0.", f"JAX_PROCESS_ID {rank}, JAX_NUM_PROCESSES {world_size}"
        )
    if world_size > 1 and not os.environ.get("JAX_COORDINATOR_ADDRESS"):
        raise RuleError(
            "Several processes meet at an address.",
            f"JAX_NUM_PROCESSES {world_size}, no JAX_COORDINATOR_ADDRESS",
            "set JAX_COORDINATOR_ADDRESS=HOST:PORT, the same for all",
        )
    return world_size, rank, device_ids


def _mesh(kind: str, world_size: int, processes: int) -> Mesh:
    """One device of each rank; a process that is alone takes its first ones."""
    try:
        devices = sorted(jax.devices(), key=lambda device: device.process_index)
    except (RuntimeError, AssertionError) as error:
        # Without its plugin, JAX asserts that there is a platform at all.
        raise RuleError(
            "The device of the run is there.",
            f"{kind}: {str(error).partition('.')[0] or 'no such platform'}, by jax {jax.__version__}",
            "install the extra jax with CUDA, or take --device cpu",
        ) from None
    if devices[0].platform != {"cpu": "cpu", "cuda": "gpu"}[kind]:
        raise RuleError(
            "A process stays on the platform of its first array.",
            f"{kind} asked for, {devices[0].platform} in use",
            "call runtime.configure before any array is made",
        )
    if processes == 1:
        devices = devices[:world_size]
        if len(devices) < world_size:
            raise RuleError(
                "A process that holds all devices of the run sees them.",
                f"{len(devices)} of {world_size}",
                "on a CPU: --xla_force_host_platform_device_count in XLA_FLAGS",
            )
    elif [device.process_index for device in devices] != list(range(world_size)):
        raise RuleError(
            "Every process has one device of its own.",
            f"{world_size} processes with {len(devices)} devices",
            "name its GPU in JAX_LOCAL_DEVICE_IDS, and leave --xla_force_host_platform_device_count out",
        )
    return Mesh(np.array(devices), (_AXIS,))
