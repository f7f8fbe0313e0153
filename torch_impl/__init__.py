"""The PyTorch side: one whole training step over flat memory whose addresses never move.

Read `step.py` first; it is the step. `memory.py` is where its state lives, `compile.py` makes it faster
without changing what it says, `trainer.py` is the library's door and `work.py` the worker's. Imports `spec`
and torch, and nothing else of this project. Counterpart: `jax_impl`, file by file.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_impl.models import Side
    from torch_impl.trainer import Trainer

__all__ = ["Side", "Trainer"]


def __getattr__(name: str) -> Any:
    """The library's door, loaded when it is first asked for."""
    if name == "Trainer":
        from torch_impl.trainer import Trainer

        return Trainer
    if name == "Side":
        from torch_impl.models import Side

        return Side
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
