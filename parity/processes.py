"""A group of processes that starts together and ends together, whatever its members do.

Each one carries a mark in its environment. Workers put themselves into sessions of their own (torchrun does
it), fork helpers, or hang while they exit; the mark finds them all. Must not: know what the processes do.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

MARK = "PARITY_LAUNCH"
"""Environment variable that every process of a group inherits; its value names the group."""

_TERMINATE_S = 1.0
"""How long a process may take to end itself before it is killed."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One process to start."""

    argv: list[str]
    environ: dict[str, str] = field(default_factory=dict)
    """Variables that differ from the referee's own."""


class Group:
    """Processes under one mark, their output in one file.

    Args:
      commands: what to start.
      log: receives stdout and stderr of all of them.
      asked: whether their standard input stays open for `ask`.
    """

    def __init__(self, commands: Sequence[Command], log: Path, asked: bool = False) -> None:
        self._asked = asked
        self.mark = uuid.uuid4().hex
        self._started: list[subprocess.Popen[bytes]] = []
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log.open("ab") as output:
                for command in commands:
                    self._started.append(self._start(command, output))
        except BaseException:
            self.end()
            raise

    def _start(self, command: Command, output: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command.argv,
            env=os.environ | command.environ | {MARK: self.mark},
            stdin=subprocess.PIPE if self._asked else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ask(self, line: str) -> None:
        """Writes a line to the standard input of every process; one that has ended takes no notice."""
        assert self._asked
        for process in self._started:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{line}\n".encode())
                process.stdin.flush()

    def poll(self) -> list[int | None]:
        """The exit code of each process, None while it runs; negative is the signal that killed it."""
        return [process.poll() for process in self._started]

    def end(self) -> tuple[int | None, ...]:
        """Ends whatever is left of the group, first gently; returns when nothing of it runs.

        Returns:
          The exit code of each process as it was before, None for one that had to be ended.
        """
        with _undisturbed():
            before = tuple(self.poll())
            for process in self._started:
                if process.stdin is not None:
                    process.stdin.close()
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + _TERMINATE_S
            while self._alive() and time.monotonic() < deadline:
                time.sleep(0.02)
            # A process may fork while it is being killed; the second look finds the child.
            while self._alive():
                self._signal(signal.SIGKILL)
                time.sleep(0.02)
        return before

    def _alive(self) -> bool:
        return None in self.poll() or bool(marked(self.mark))

    def _signal(self, number: signal.Signals) -> None:
        for process in self._started:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
        for pid in marked(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def marked(mark: str) -> list[int]:
    """Ids of the running processes that carry the mark; empty where there is no /proc to read."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        # Gone meanwhile, or another user's. A process that has ended and is not yet reaped shows nothing.
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


@contextlib.contextmanager
def _undisturbed() -> Generator[None]:
    """A second Ctrl-C must not stop the cleaning up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    requests = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    saved = {number: signal.signal(number, signal.SIG_IGN) for number in requests}
    try:
        yield
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
