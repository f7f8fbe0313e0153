"""The JAX side: one whole training step as ONE XLA program, compiled once, updating its state in place.

Read `step.py` first; it is the step. `memory.py` is what its state is, `parallel.py` how ranks share it,
`compile.py` makes it one program and proves what that program does, `trainer.py` is the library's door and
`work.py` the worker's. Imports `spec`, JAX, flax and optax, and nothing else of this project. Counterpart:
`torch_impl`, file by file.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax_impl.models import Side
    from jax_impl.trainer import Trainer

__all__ = ["Side", "Trainer"]


def __getattr__(name: str) -> Any:
    """The library's door, loaded when it is first asked for."""
    if name == "Trainer":
        from jax_impl.trainer import Trainer

        return Trainer
    if name == "Side":
        from jax_impl.models import Side

        return Side
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
