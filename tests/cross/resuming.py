"""Jobs of either side that save, are killed and go on, in this process or in real ones."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec.checkpoint import checkpoints_in
from spec.checkpoint.find import FOLDER
from spec.job import Job
from tests.jax_impl.jobs import job, steps_of
from tests.jax_impl.processes import ROOT, free_port

TIMEOUT_S = 150.0


@dataclass(frozen=True)
class Way:
    """How a job is run."""

    side: str
    mode: str
    processes: int = 1

    def job(self, out: Path, **changes: Any) -> Job:
        """A run job in this way."""
        return job(out, side=self.side, mode=self.mode, world_size=self.processes, **changes)

    def __str__(self) -> str:
        return f"{self.side}-{self.mode}-{self.processes}"


def work(*jobs: Job) -> int:
    """Does jobs of one side in this process; the exit code."""
    main = importlib.import_module(f"{jobs[0].side}_impl.__main__").main
    return main(["work", *(str(each.write()) for each in jobs)])


def start(way: Way, *jobs: Job) -> list[subprocess.Popen[bytes]]:
    """Real processes that do the jobs, one a rank."""
    return start_module(way, f"{way.side}_impl", "work", *(str(each.write()) for each in jobs))


def start_module(way: Way, *arguments: str) -> list[subprocess.Popen[bytes]]:
    """`python -m *arguments` for each rank, in one group."""
    address, port = "127.0.0.1", free_port()
    command = [sys.executable, "-m", *arguments]
    processes = []
    for rank in range(way.processes):
        environ = dict(os.environ)
        if way.processes > 1 and way.side == "torch":
            environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(way.processes)}
            environ |= {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
        elif way.processes > 1:
            environ |= {"JAX_COORDINATOR_ADDRESS": f"{address}:{port}", "JAX_PROCESS_ID": str(rank)}
            environ |= {"JAX_NUM_PROCESSES": str(way.processes)}
        processes.append(subprocess.Popen(command, cwd=ROOT, env=environ))
    return processes


def finish(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    """Exit codes; what hangs is killed."""
    try:
        return [process.wait(TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def kill_after_a_checkpoint(processes: list[subprocess.Popen[bytes]], out: Path) -> int:
    """Sends SIGKILL to all ranks once a checkpoint is there; the steps of the newest that was left."""
    deadline = time.monotonic() + TIMEOUT_S
    while not checkpoints_in(out / FOLDER) and time.monotonic() < deadline:
        assert all(process.poll() is None for process in processes), "ended before its first checkpoint"
        time.sleep(0.002)
    for process in processes:
        process.send_signal(signal.SIGKILL)
    assert set(finish(processes)) == {-signal.SIGKILL}
    return max(checkpoints_in(out / FOLDER))


def checkpoint_of(out: Path, step: int) -> str:
    """The checkpoint of a pass after so many steps."""
    return str(checkpoints_in(out / FOLDER)[step])


def assert_goes_on(resumed: Path, whole: Path, step: int, processes: int = 1) -> None:
    """Every step from `step` on, and the state at the end, are those of the whole run, to the bit."""
    for rank in range(processes):
        lines = steps_of(resumed, rank)
        assert lines[0]["step"] == step
        assert lines == steps_of(whole, rank)[step:]
        digests = [json.loads((out / f"digest.rank{rank}.json").read_text()) for out in (resumed, whole)]
        assert digests[0] == digests[1]
