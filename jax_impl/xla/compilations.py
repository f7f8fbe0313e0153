"""Counts the programs that JAX makes, by the name of the function: compiled here, or taken from its cache.

A step that is made twice has changed its types; a program that appears between two steps is work that nobody
meant to be there. Must not: start a compilation. JAX reports a program from its persistent cache as compiled;
what it says right before on the same thread tells the two apart.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Generator

import jax.monitoring

_MADE = "/jax/core/compile/backend_compile_duration"
_HIT, _MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"
_made: Counter[str] = Counter()
_cached: Counter[str] = Counter()
_order: list[str] = []
_thread = threading.local()


def count(function: str) -> int:
    """Programs of the function of that name that this process has made, from a cache or not."""
    return _made[function]


def from_cache(function: str) -> int:
    """Of those, programs that were read from the persistent cache."""
    return _cached[function]


def mark() -> int:
    """A point in time, for `since`."""
    return len(_order)


def since(mark: int) -> list[str]:
    """Functions whose programs were made after the mark, in order, those made `apart` left out."""
    return _order[mark:]


@contextlib.contextmanager
def apart() -> Generator[None]:
    """Around programs that are meant to be made between steps, such as those that observe."""
    before = mark()
    try:
        yield
    finally:
        del _order[before:]


def _note_event(event: str, **details: str | int) -> None:
    if event in (_HIT, _MISS):
        _thread.hit = event == _HIT


def _note_duration(event: str, duration_secs: float, **details: str | int) -> None:
    if event == _MADE:
        # jax names the program `jit(step)`, the function `step`.
        name = str(details.get("fun_name", "")).removeprefix("jit(").removesuffix(")")
        _made[name] += 1
        _cached[name] += getattr(_thread, "hit", False)
        _thread.hit = False
        _order.append(name)


jax.monitoring.register_event_listener(_note_event)
jax.monitoring.register_event_duration_secs_listener(_note_duration)
