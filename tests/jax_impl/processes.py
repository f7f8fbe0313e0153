"""Starts real processes of the JAX side as users do: one a device, with the variables of jax.distributed."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    """A TCP port that was free a moment ago on the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_group(
    arguments: Sequence[str],
    num_processes: int = 2,
    timeout_s: float = 150.0,
    environ: Mapping[str, str] = os.environ,
    gpus: bool = False,
) -> list[tuple[int, str]]:
    """Runs `python *arguments` once for each rank; exit codes and outputs in the order of ranks.

    What still runs after `timeout_s` is killed, and the test fails with all output.

    Args:
      gpus: give rank r the GPU number r.
    """
    group = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": str(num_processes)}
    processes = [
        subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**environ, **group, "JAX_PROCESS_ID": str(rank)}
            | ({"JAX_LOCAL_DEVICE_IDS": str(rank)} if gpus else {}),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(num_processes)
    ]
    try:
        outputs = [process.communicate(timeout=timeout_s)[0] for process in processes]
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        pytest.fail("hangs:\n" + "\n".join(str(process.communicate()[0]) for process in processes))
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]
