"""Proves that a captured step with an optimizer of the user's own trains as it does uncaptured.

From the state at capture, a few steps are made operation by operation and as many by replay, on the same
rows. Where they part, what the host computes in each step is frozen in the graph: the capture carries the
difference, since the uncaptured steps are the same program and repeat themselves; where they do not, nothing
is shown and the optimizer is refused. Must not: leave a trace; all state is put back.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from spec.errors import RuleError, few
from torch_impl.graph.adapt import Captured
from torch_impl.graph.capture import explain
from torch_impl.graph.neutral import SavedState
from torch_impl.graph.proof import STEPS, Found, find_frozen
from torch_impl.memory import Arena
from torch_impl.own_optimizer import OwnUpdate

_RULE = "A captured optimizer trains as it does eagerly."
_MEND = (
    "keep what changes from step to step in tensors on the device, counters and rates too (torch.optim: "
    "capturable=True), or take --mode torch=eager"
)
_LEAST = 1e-4
"""Of a tensor's way, where a profile does not promise bits: atomics may leave two runs alike by chance."""
_MOST = 1e-2
"""Of a tensor's way, what atomics may part eager steps by; more comes from what was not put back."""


def prove_own(
    own: OwnUpdate, captured: Captured, arena: Arena, batch: dict[str, Tensor], exact: bool
) -> dict[str, Any]:
    """What was compared, for the record.

    Args:
      batch: this rank's rows on the device; all ranks call this together.
      exact: whether the profile promises bits.

    Raises:
      RuleError: replays train otherwise; the graph is closed, as it is whatever else is raised.
    """
    whole, found, cause = captured.step, None, None
    rows = {name: values.cpu() for name, values in batch.items()}
    try:
        try:
            found = check_own(
                own,
                arena,
                eager=lambda: captured.program(batch),
                replay=lambda: _discard(whole(rows)),
                exact=exact,
            )
        finally:
            whole.rewind()
    except RuleError as error:
        failure, cause = error.numbers or error.rule, error
    except Exception as error:
        # The other ranks are to hear of it too, be it memory that ran out here alone.
        failure, cause = explain(error, "the comparison of captured and eager steps"), error
    else:
        failure = None
    if failures := whole.agree(failure):
        whole.close()
        raise cause or RuleError(_RULE, few(failures, 1), _MEND)
    assert found is not None, "no rank failed"
    return _record(found, exact)


def check_own(
    own: OwnUpdate, arena: Arena, eager: Callable[[], None], replay: Callable[[], None], exact: bool
) -> Found:
    """Refuses an optimizer whose replays train otherwise, or may; the state is as it was, in any case.

    Args:
      eager, replay: make one step of the arena; see `find_frozen`.
      exact: whether the eager steps are to repeat themselves to the bit.

    Raises:
      RuleError: replays part from the eager steps; or these part from themselves, so that they can show
        nothing; or numbers on the host change from step to step, though a few steps show nothing of it: every
        fifth step may be another one.
    """
    saved, held = SavedState([*arena.lasting(), *own.lasting()], arena.device), own.held()
    changed: list[str] = []

    def put_back() -> None:
        changed.extend(held.changed() if not changed else ())
        held.put_back()
        saved.put_back()

    try:
        least = 0.0 if exact else _LEAST
        found = find_frozen(eager, replay, put_back, lambda: arena.tensors("param"), least)
    finally:
        put_back()
    if refusal := _refusal(found, few(changed, 3, ", "), exact):
        raise RuleError(_RULE, refusal, _MEND)
    return found


def _refusal(found: Found, changed: str, exact: bool) -> str:
    """Why these steps do not show that replays train as they do; empty where they do."""
    if found.floor > 0 if exact else found.usual_floor > _MOST:
        worst = max(found.floors, key=lambda name: found.floors[name])
        seen = f" besides its state on the host ({changed})" if changed else ""
        return (
            f"the eager steps do not repeat themselves (made twice from one state, {worst} is up to "
            f"{found.floor:.1e} of its way off): the optimizer keeps what cannot be looked into{seen}, "
            "such as an iterator or what a function closes over, and a graph would freeze it"
        )
    if found.frozen is not None:
        cause = "its state on the host is frozen in the graph"
        cause += f" ({changed})" if changed else ", be it in what cannot be looked into"
        repeated = (
            "repeat themselves" if found.floor == 0 else f"differ by {found.floor:.1e} at most, made twice"
        )
        return (
            f"the captured optimizer trains otherwise than eager from step {found.frozen.step} on: {cause}; "
            f"{found.frozen}; the eager steps {repeated}, so the capture carries it, not the framework"
        )
    if changed:
        return (
            "its state on the host changes from step to step and would be frozen in the graph "
            f"({changed}); {STEPS} steps show nothing of it, and later ones may"
        )
    return ""


def _record(found: Found, exact: bool) -> dict[str, Any]:
    """What the comparison shows; where nothing moved that is nothing: a frozen step moves nothing either."""
    record = {"steps_compared": found.moved, "bits_compared": exact and found.moved > 0}
    if found.moved < STEPS:
        why = f"parameters moved in {found.moved} of {STEPS} steps: the rate was 0, or rows were not finite"
        return record | {"not_compared": why}
    return record


def _discard(number: int) -> None:
    """Of a step's number."""
