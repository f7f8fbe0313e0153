"""Match: how two models' tensors correspond, how that was found. A side writes it, the referee reads it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spec.description import Described, Description
from spec.mapping.links import Link

NOT_FINITE = 1e300
"""How far apart gradients are of which one is NaN or infinite; JSON has no word for that."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """The links and their proof."""

    links: tuple[Link, ...]
    """Of parameters and running statistics."""
    paths: dict[str, str] = field(default_factory=dict)
    """The path that users know of each JAX array: `fc.kernel` of `fc.weight`."""
    unmatched_torch: tuple[str, ...] = ()
    """Path and shape of tensors without a counterpart. A constant that no step changes needs none."""
    unmatched_jax: tuple[str, ...] = ()
    ties: tuple[str, ...] = ()
    """Where one side alone ties what the other holds apart: which, and how their gradients relate."""
    trained_alone: tuple[str, ...] = ()
    """Of those, parameters that the other side holds as a buffer, in words."""
    tried: int = 0
    """Candidates whose loss and gradients were computed."""
    untried: int = 0
    """Candidates that were left when the search ended at its limit without a proof."""
    not_finite: tuple[str, ...] = ()
    """What of the first batch is NaN or infinite, by side in words, so that no candidate can be proven."""
    settled: tuple[str, ...] = ()
    """What was not as names and shapes suggest, but as the gradients say."""
    proven: bool = False
    """Whether loss and gradients agree under the links."""
    loss_apart: float = 0.0
    """Relative difference of the losses."""
    worst_gradient: str = ""
    """The torch tensor whose gradients are farthest apart, and how far, relative to their RMS."""
    gradient_apart: float = 0.0
    precision: str = ""
    """The precision profile in which both models were asked; empty where they were not."""
    zero_gradients: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Rows [start, stop) of torch tensors whose exact gradient is zero."""
    reasons: tuple[str, ...] = ()


def trained_alone(lost: Iterable[Described], side: str, other: Description) -> Iterator[str]:
    """Says of parameters without a counterpart which buffer of the other side they are."""
    for tensor in lost:
        found = [buffer for buffer in other.buffers if buffer.shape == tensor.shape and not buffer.changes]
        same = [buffer for buffer in found if buffer.path.split(".")[-1] == tensor.path.split(".")[-1]]
        if buffers := same or found:
            mend = f"make it no parameter in {side}, or use {_STOPPED[side]}"
            where = f"in {other.side} it is the buffer {buffers[0].path}, which has no gradient"
            yield f"{tensor.path} is trainable only in {side}: {where}; {mend}"


_STOPPED = {"jax": "lax.stop_gradient", "torch": "detach()"}
