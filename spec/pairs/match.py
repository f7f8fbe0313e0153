"""Match: how two models' tensors correspond, how that was found. A side writes it, the referee reads it."""

from dataclasses import dataclass, field

from spec.mapping.links import Link


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
    tried: int = 0
    """Candidates whose loss and gradients were computed."""
    settled: tuple[str, ...] = ()
    """What was not as names and shapes suggest, but as the gradients say."""
    proven: bool = False
    """Whether loss and gradients agree under the links."""
    loss_apart: float = 0.0
    """Relative difference of the losses."""
    worst_gradient: str = ""
    """The torch tensor whose gradients are farthest apart, and how far, relative to their RMS."""
    gradient_apart: float = 0.0
    zero_gradients: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Rows [start, stop) of torch tensors whose exact gradient is zero."""
    reasons: tuple[str, ...] = ()
