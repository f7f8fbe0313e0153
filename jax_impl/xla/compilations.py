"""Counts what JAX compiles, by the name of the function: a step that is compiled twice has changed its types.

Must not: start a compilation. JAX reports a program that it takes from its persistent cache like one that it
compiles; both count.
"""

from collections import Counter

import jax.monitoring

_EVENT = "/jax/core/compile/backend_compile_duration"
_counts: Counter[str] = Counter()


def count(function: str) -> int:
    """Programs of the function of that name that this process has compiled or taken from a cache."""
    return _counts[function]


def _note(event: str, duration_secs: float, **details: str | int) -> None:
    if event == _EVENT:
        # jax names the program `jit(step)`, the function `step`.
        name = str(details.get("fun_name", ""))
        _counts[name.removeprefix("jit(").removesuffix(")")] += 1


jax.monitoring.register_event_duration_secs_listener(_note)
