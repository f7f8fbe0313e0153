"""The few numbers that a reader looks for first.

Must not: compute; each stands in the result with its conditions.
"""

from dataclasses import dataclass

from parity.report.page.words import amount, number
from parity.report.result import Result
from parity.report.words import allowed, newest_call


@dataclass(frozen=True)
class Fact:
    """One number."""

    name: str
    value: str
    note: str


def facts(result: Result) -> list[Fact]:
    """At most six; none where nothing was judged or timed."""
    found = []
    numerics = result.numerics
    if numerics is not None and numerics.loss is not None:
        bound = f"allowed {allowed(numerics.loss.tolerance)}, over {numerics.steps} steps"
        found.append(Fact("loss, largest relative difference", number(numerics.loss.max_rel), bound))
    if numerics is not None and numerics.tensors:
        beyond = sum(not item.ok for item in numerics.tensors)
        found.append(Fact("tensors beyond their bound", f"{beyond} of {len(numerics.tensors)}", "all phases"))
    speed = result.speed
    call = newest_call(result)
    of_call = f", {call}" if call else ""
    sides = [] if speed is None else [("torch", speed.torch), ("jax", speed.jax)]
    for side, own in sides:
        if own is not None and own.step_ms is not None:
            found.append(
                Fact(f"{side}, a step", f"{amount(own.step_ms.median)} ms", f"median, {own.mode}{of_call}")
            )
    for side, own in sides:
        if own is not None and own.dispatch_us is not None:
            note = f"median, to call a step and return{of_call}"
            found.append(Fact(f"{side}, host time", f"{amount(own.dispatch_us.median)} us", note))
    return found
