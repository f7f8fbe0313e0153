"""Work of NumPy's on several threads: it lets go of the interpreter lock while it copies or draws.

What a large model costs on the host, its first weights drawn and its state turned from one layout into the
other, is many independent arrays. Must not: be used for Python code, which one thread runs as fast.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")

_MOST = 8
"""Several processes share a host, and memory is as wide as a few cores."""


def each(function: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
    """The function of every item, in their order; what one raises is raised here."""
    with ThreadPoolExecutor(min(_MOST, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, items))
