"""Names the rank that stands still while others wait for it, and ends all: collectives wait for ever.

Every rank tells the others how many steps it has dispatched, through the key-value store of
`jax.distributed`. One that has waited too long reads what the others told: whoever is behind is named, and
the process ends. The rank that stands still then misses the others' heartbeats and is ended too. A rank that
is killed is noticed by its own missing heartbeats, see `parallel.join`. Must not: touch a device, or end a
process that does not wait.
"""

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from spec.errors import ExitCode

_KEY = "parity/steps"


class Watch:
    """The watch of one process.

    Args:
      client: of `jax.distributed`.
      limit_s: a wait that takes longer ends the process.
      period_s: how often progress is told and waits are looked at.
    """

    def __init__(
        self, client: Any, rank: int, world_size: int, limit_s: float, period_s: float = 0.5
    ) -> None:
        self._client, self._rank, self._world_size = client, rank, world_size
        self.limit_s, self._period_s = limit_s, period_s
        self.steps = 0
        """Steps dispatched by this rank."""
        self.on_stall: Callable[[str], None] = lambda message: None
        """Told what was found, before the process ends."""
        self._since: float | None = None
        self._told = -1
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch; to be called before the process leaves its group, for whose client this asks."""
        self._ended.set()
        self._thread.join()

    @contextlib.contextmanager
    def waiting(self) -> Generator[None]:
        """Around whatever ends only when other ranks come along."""
        outer, self._since = self._since, time.monotonic()
        try:
            yield
        except Exception as error:
            # A peer that ended closes its connections; the error that comes of it names no rank. Those that
            # live have told of their last step by then.
            time.sleep(2 * self._period_s)
            print(f"{self._describe()}; ended by: {str(error)[:200]}", file=sys.stderr, flush=True)
            raise
        finally:
            self._since = outer

    def _run(self) -> None:
        while not self._ended.wait(self._period_s):
            if self.steps != self._told:
                self._told = self.steps
                self._client.key_value_set(f"{_KEY}/{self._rank}", str(self._told), allow_overwrite=True)
            since = self._since
            if since is not None and time.monotonic() - since > self.limit_s:
                self._give_up()

    def _give_up(self) -> None:
        message = f"{self._describe()}; no progress in {self.limit_s:g} s"
        print(message, file=sys.stderr, flush=True)
        self.on_stall(message)
        sys.stdout.flush()
        os._exit(int(ExitCode.CRASHED))

    def _describe(self) -> str:
        try:
            told = dict(self._client.key_value_dir_get(_KEY))
        except Exception as error:
            return f"rank {self._rank} waits; rank 0, where all meet, cannot be reached: {str(error)[:100]}"
        steps = [int(told.get(f"{_KEY}/{rank}", 0)) for rank in range(self._world_size)]
        steps[self._rank] = self.steps
        return describe_wait(steps, self._rank)


def describe_wait(steps: list[int], rank: int) -> str:
    """Who is behind, from the steps that each rank has dispatched."""
    behind = [other for other, count in enumerate(steps) if count < max(steps)]
    counts = ", ".join(f"rank {other}: {count}" for other, count in enumerate(steps))
    who = f"waits for rank {', '.join(map(str, behind))}" if behind else "waits, and no rank is behind"
    return f"rank {rank} {who}; steps dispatched: {counts}"


_current: Watch | None = None


def start(client: Any, rank: int, world_size: int, limit_s: float) -> None:
    """Starts the watch of this process."""
    global _current
    _current = Watch(client, rank, world_size, limit_s)
    # A thread inside the client, while Python ends, would end the process by a signal.
    atexit.register(stop)


def stop() -> None:
    """Ends the watch of this process, if there is one."""
    global _current
    if _current is not None:
        _current.stop()
        _current = None


def current() -> Watch | None:
    """The watch of this process; None where it is alone."""
    return _current


def waiting() -> contextlib.AbstractContextManager[None]:
    """Around whatever ends only when other ranks come along; nothing where this process is alone."""
    return contextlib.nullcontext() if _current is None else _current.waiting()


def progress(steps: int) -> None:
    """Notes how many steps this rank has dispatched."""
    if _current is not None:
        _current.steps = steps
