"""A side's process that is kept and given one job after another, so that a try costs what it computes.

Must not: know what the jobs are for.
"""

import sys
import time
from pathlib import Path

from parity.commands import side_environ
from parity.folders import read_json
from parity.launch import SideFailed, raise_told
from parity.processes import Command, Group
from spec.job import Job

_POLL_S = 0.005


class Worker:
    """One process, on the CPU unless told otherwise; to be closed on every way out.

    Args:
      log: receives what the process prints outside its jobs.
      timeout_s: a job that takes longer is an error.
    """

    def __init__(self, side: str, log: Path, timeout_s: float, device: str = "cpu") -> None:
        self._side, self._log, self._timeout_s, self._device = side, log, timeout_s, device
        self._group: Group | None = None
        self.jobs = 0
        """Jobs asked for."""

    def start(self, job: Job) -> None:
        """Hands a job over and returns at once; the process is started where there is none."""
        assert job.side == self._side
        if self._group is None:
            argv = [sys.executable, "-m", f"{self._side}_impl", "work", "-"]
            self._group = Group(
                [Command(argv=argv, environ=side_environ(self._device, 1))], self._log, asked=True
            )
        self._group.ask(str(job.write()))
        self.jobs += 1

    def wait(self, job: Job) -> Path:
        """The pass folder of a job that was handed over, once it is done.

        Raises:
          RuleError: the side broke off, with its own rule.
          SideFailed: its process ended or hung.
        """
        out, began = Path(job.out), time.monotonic()
        assert self._group is not None
        while not (out / "done.json").exists():
            ended = self._group.poll() != [None]
            if ended or time.monotonic() - began > self._timeout_s:
                self.close()
                self._tell(out, ended)
            time.sleep(_POLL_S)
        return out

    def do(self, job: Job) -> Path:
        """Both."""
        self.start(job)
        return self.wait(job)

    def close(self) -> None:
        """Ends the process, if there is one."""
        if self._group is not None:
            self._group.end()
            self._group = None

    def _tell(self, out: Path, ended: bool) -> None:
        if (out / "done.json").exists():
            return
        if (out / "error.json").exists():
            raise_told(read_json(out / "error.json"))
        raise SideFailed(
            f"The {self._side} side does a job and says so.",
            "its process ended" if ended else f"nothing after {self._timeout_s:.0f} s",
            f"read {out} and {self._log}",
        )
