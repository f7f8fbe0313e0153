"""Makes a function of (state, batch) one XLA program, ahead of time and once, and knows it again.

Nothing runs here: programs are compiled from shapes and shardings alone. Must not: choose a compiler option.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.sharding import PartitionSpec

from jax_impl.memory import Arena, abstract, layout
from jax_impl.parallel import BY_RANK
from jax_impl.xla import compilations, flags, ledger


@dataclass(frozen=True)
class Built:
    """A program, and what making it took."""

    program: jax.stages.Compiled
    seconds: float
    made: int
    """Programs that came of it; one, or the function was traced to several."""
    from_cache: int
    """Of those, programs read from JAX's persistent cache."""
    ledger: dict[str, Any] | None
    """What runs in command buffers; None with the reason in `no_ledger`."""
    no_ledger: str | None

    def found(self) -> dict[str, Any]:
        """What is known before it runs, for the manifest."""
        return {
            "programs_compiled": self.made - self.from_cache,
            "programs_from_cache": self.from_cache,
            "memory_bytes": self._memory_bytes(),
            "command_buffers": self.ledger,
            "reasons": {"command_buffers": self.no_ledger} if self.no_ledger else {},
        }

    def _memory_bytes(self) -> dict[str, int]:
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
        program, found = _compile(lowered, options)
        _built[source] = Built(
            program,
            time.perf_counter() - started,
            compilations.count(name) - made,
            compilations.from_cache(name) - from_cache,
            found,
            None if found else _why_no_ledger(),
        )
    return _built[source]


def _why_no_ledger() -> str:
    if jax.default_backend() == "cpu":
        return ledger.NO_CPU
    setting = "jax_compilation_cache_dir"
    return ledger.CACHED if getattr(jax.config, setting) else ledger.NOT_WRITTEN


def _compile(
    lowered: jax.stages.Lowered, options: dict[str, Any]
) -> tuple[jax.stages.Compiled, dict[str, Any] | None]:
    """The program, and on a GPU what XLA wrote of its thunks."""
    if _why_no_ledger() != ledger.NOT_WRITTEN:
        return lowered.compile(options), None
    told = flags.values() | options
    buffers = told.get("xla_gpu_enable_command_buffer", [])
    enabled = buffers.split(",") if isinstance(buffers, str) else buffers
    with tempfile.TemporaryDirectory() as folder:
        dumped = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        program = lowered.compile(options | dumped)
        smallest = int(told.get("xla_gpu_graph_min_graph_size", 0))
        return program, ledger.read_ledger(Path(folder), enabled, smallest)
