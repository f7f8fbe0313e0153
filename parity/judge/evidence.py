"""One thing that was compared, and the order of causes that picks the first that differs."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from parity.report.lockstep import Measures
from parity.report.result import Divergence, DivergenceClass

CAUSAL_ORDER = (
    "facts",
    "handoff",
    "steps",
    "tokens",
    "act",
    "loss",
    "grad",
    "grad_norm",
    "clipped",
    "skipped",
    "m",
    "v",
    "lr",
    "param",
    "buffer",
    "eval",
    "replicas",
)
"""Phases within a step. What comes later is made from what comes before; the batch and the initial
parameters were compared by the gate."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Something that does not agree within its tolerance, or a remark where `ok`."""

    step: int
    phase: str
    message: str
    ok: bool = False
    covered: bool = True
    """Whether it decides: not so beyond the steps that a tolerance covers, where two right sides may part by
    rounding, and not where too little was measured."""
    tensor: str | None = None
    class_: DivergenceClass | None = None
    index: tuple[int, ...] = ()
    values: dict[str, str] = field(default_factory=dict)
    difference: float | None = None
    tolerance: float | None = None
    numbers: Measures | None = None


def first(evidence: Iterable[Evidence]) -> Evidence | None:
    """The first that differs in causal order; of one step and phase, the first found."""
    failing = [item for item in evidence if not item.ok]
    return min(failing, key=lambda item: (item.step, CAUSAL_ORDER.index(item.phase)), default=None)


def divergence(item: Evidence) -> Divergence:
    """The evidence as it stands in `result.json`."""
    return Divergence(
        step=item.step,
        phase=item.phase,
        tensor=item.tensor,
        class_=item.class_,
        index=list(item.index),
        values=item.values,
        difference=item.difference,
        tolerance=item.tolerance,
        message=item.message,
        numbers=item.numbers,
    )
