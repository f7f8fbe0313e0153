"""The command lines and environments that start a side: torchrun for torch, one process a device for jax.

Must not: start anything. The sides read their ranks from what is set here.
"""

import os
import socket
import sys
from pathlib import Path

from parity.cluster import Cluster
from parity.devices import count_cores
from parity.processes import Command
from spec.jit import TUNED

_ROOT = Path(__file__).resolve().parent.parent


def side_commands(
    side: str,
    jobs: list[Path],
    device: str,
    local_processes: int,
    cluster: Cluster,
    traced: bool = False,
    devices_each: int = 1,
    tuned: Path | None = None,
) -> list[Command]:
    """What to start on this host so that all ranks of `side` do the jobs in order.

    Args:
      traced: whether the side is started by the tracer, which then is the module that runs.
      devices_each: how many devices a process holds.
      tuned: where XLA keeps which kernels were the fastest, so that all programs of a run take the same;
        PyTorch tries none out.
    """
    environ = side_environ(device, local_processes)
    if tuned is not None and side == "jax" and device == "cuda":
        environ[TUNED] = str(tuned.absolute())
    if devices_each > 1 and device == "cpu":
        given = os.environ.get("XLA_FLAGS", "")
        environ["XLA_FLAGS"] = f"{given} --xla_force_host_platform_device_count={devices_each}".strip()
    tracer = ["parity.tracer", "-m"] if traced else []
    work = [*tracer, f"{side}_impl", "work", *map(str, jobs)]
    if local_processes * cluster.nodes == 1:
        return [Command(argv=[sys.executable, "-m", *work], environ=environ)]
    address = cluster.rendezvous or f"127.0.0.1:{free_port()}"
    if side == "torch":
        argv = [sys.executable, "-m", *_torchrun(local_processes, cluster, address), "-m", *work]
        return [Command(argv=argv, environ=environ)]
    return [
        Command(
            argv=[sys.executable, "-m", *work],
            environ=environ | _jax_rank(local, local_processes, cluster, address, device),
        )
        for local in range(local_processes)
    ]


def _torchrun(local_processes: int, cluster: Cluster, address: str) -> list[str]:
    host, _, port = address.rpartition(":")
    options = {
        "nproc-per-node": local_processes,
        "nnodes": cluster.nodes,
        "node-rank": cluster.node_rank,
        "master-addr": host,
        "master-port": port,
    }
    return ["torch.distributed.run", *(f"--{name}={value}" for name, value in options.items())]


def _jax_rank(
    local: int, local_processes: int, cluster: Cluster, address: str, device: str
) -> dict[str, str]:
    """jax.distributed's own variables, and the one GPU of this process."""
    environ = {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": str(local_processes * cluster.nodes),
        "JAX_PROCESS_ID": str(cluster.node_rank * local_processes + local),
    }
    return environ | {"JAX_LOCAL_DEVICE_IDS": str(local)} if device == "cuda" else environ


def side_environ(device: str, local_processes: int) -> dict[str, str]:
    """What every process of a side has: its share of threads, no GPU in a CPU run, the sides where they are
    in a bare checkout."""
    environ = {"PYTHONPATH": python_path(), "PYTHONUNBUFFERED": "1"}
    if "OMP_NUM_THREADS" not in os.environ:
        environ["OMP_NUM_THREADS"] = str(max(1, count_cores() // local_processes))
    if device == "cpu":
        environ |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    return environ


def python_path() -> str:
    """PYTHONPATH of a process that finds this project in a bare checkout, and what this one finds by it."""
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(_ROOT)]))


def free_port() -> int:
    """A TCP port that was free a moment ago on the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
