"""OwnOptimizer: each side of a pair makes its own, from the library that its users know.

What such a run cannot show is said here, once, for whoever reads a result.
"""

from dataclasses import dataclass

from spec.errors import RuleError

UNCOMPARED = (
    "own optimizers: learning rates and moments are each side's own and are not compared; parameters are, "
    "against the distance that they moved"
)
NOT_EDITED = "own optimizers: edits of AdamW and of the schedule reach nothing; clip_eps and loss_scale do"

UNKNOWN_DECAY = "an optimizer of one's own decays what it will and does not tell"

_NOT_COMPILED = ("eager", "graph", "graph+inductor")
"""Torch's modes in which such an optimizer can be; all but the first need a GPU."""


@dataclass(frozen=True, kw_only=True)
class OwnOptimizer:
    """In place of AdamW: `optimizer(named_parameters)` of the torch side's file, `optimizer()` of JAX's."""

    max_norm: float | None = None
    """Gradients are scaled by min(1, max_norm / norm) before the optimizer sees them; None leaves them."""

    def __post_init__(self) -> None:
        if self.max_norm is not None and not self.max_norm > 0:
            raise RuleError(
                "The clipping norm is positive.", f"max_norm {self.max_norm}", "use None for none"
            )


def refuse_compiled(mode: str, found: str, device: str) -> None:
    """Refuses torch's modes other than those in which an optimizer of the user's own is eager or captured.

    Args:
      found: what is shown of it.
      device: `cpu` or `cuda`, which says what can be had instead.

    Raises:
      RuleError: it is such a mode.
    """
    if mode not in _NOT_COMPILED:
        can = _NOT_COMPILED if device == "cuda" else _NOT_COMPILED[:1]
        raise RuleError(
            "An optimizer of one's own runs eagerly or is captured; nobody knows whether it compiles.",
            found,
            f"take --mode torch={' or torch='.join(can)}",
        )


def refuse_saving(optimizer: object | None) -> None:
    """Refuses to save a run whose side brings an optimizer, since nobody else knows its state.

    Raises:
      RuleError: there is one.
    """
    if optimizer is not None:
        raise lost_state("an optimizer of one's own", "run without saving, or without the optimizer")


def lost_state(numbers: str, mend: str) -> RuleError:
    """That an optimizer's state would be lost from a checkpoint; for the caller to raise in its own terms."""
    return RuleError("A checkpoint holds the state of the built-in AdamW.", numbers, mend)
