"""The order in which a graph's things end: executable, then graph, then communicator.

NCCL waits for every graph that holds one of its kernels before it lets a communicator go, so a process that
ends the other way round hangs. Live graphs are listed here; whoever is about to end a process group calls
`close_graphs` first, and so does the interpreter on its way out. Must not: import anything of CUDA's.
"""

import atexit
from collections.abc import Callable

_live: dict[int, Callable[[], None]] = {}


def on_close(owner: object, close: Callable[[], None]) -> None:
    """Lists a live graph; `close` must bear being called once, at any time."""
    _live[id(owner)] = close


def closed(owner: object) -> None:
    """Takes a graph that closed by itself off the list."""
    _live.pop(id(owner), None)


def close_graphs() -> None:
    """Closes what is live, the youngest first. One that fails does not keep the others from closing."""
    failures: list[Exception] = []
    while _live:
        _, close = _live.popitem()
        try:
            close()
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


atexit.register(close_graphs)
