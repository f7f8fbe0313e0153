"""Makes a function of (state, batch) one XLA program, ahead of time and once, and knows it again.

Nothing runs here: programs are compiled from shapes and shardings alone. Must not: choose a compiler option.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import PartitionSpec

from jax_impl.memory import Arena, abstract, layout
from jax_impl.parallel import BY_RANK
from jax_impl.xla import compilations


@dataclass(frozen=True)
class Built:
    """A program, and what making it took."""

    program: jax.stages.Compiled
    seconds: float
    made: int
    """Programs that came of it; one, or the function was traced to several."""
    from_cache: int
    """Of those, programs read from JAX's persistent cache."""

    def memory_bytes(self) -> dict[str, int]:
        """What the compiler says it needs on one device, before anything runs."""
        memory = self.program.memory_analysis()
        assert memory is not None
        return {
            "arguments": memory.argument_size_in_bytes,
            "outputs": memory.output_size_in_bytes,
            "in_place": memory.alias_size_in_bytes,
            "temporary": memory.temp_size_in_bytes,
            "code": memory.generated_code_size_in_bytes,
        }


_built: dict[str, Built] = {}
"""Programs of this process by their source, so that its next job on the same problem need not compile."""


def build(
    function: Callable[..., Any],
    arena: Arena,
    batch: Any,
    options: dict[str, Any],
    rows: PartitionSpec = BY_RANK,
    gradients: tuple[PartitionSpec, ...] = (),
    donate_argnums: int | tuple[()] = (),
) -> Built:
    """The program of (state, batch) -> (state, metrics, ...).

    Args:
      batch: arrays of the shapes, dtypes and shardings that every later batch has.
      options: what the compiler is told.
      rows: where batch and metrics lie.
      gradients: where they lie, if the function returns them after state and metrics.
    """
    state = arena.train_state
    inputs, outputs = (layout(state), rows), (layout(state), rows, *gradients)
    jitted = jax.jit(
        arena.ranks.spread(function, inputs, outputs),
        in_shardings=jax.tree.map(arena.ranks.sharding, inputs),
        out_shardings=jax.tree.map(arena.ranks.sharding, outputs),
        donate_argnums=donate_argnums,
        # A dropped argument would renumber those whose memory is reused, which `prove_in_place` reads.
        keep_unused=True,
    )
    name, started = function.__name__, time.perf_counter()
    made, from_cache = compilations.count(name), compilations.from_cache(name)
    lowered = jitted.lower(abstract(state), abstract(batch))
    source = f"{lowered.as_text()}\n{options}"
    if source not in _built:
        program = lowered.compile(options)
        _built[source] = Built(
            program,
            time.perf_counter() - started,
            compilations.count(name) - made,
            compilations.from_cache(name) - from_cache,
        )
    return _built[source]
