"""Proves that a captured step with an optimizer of the user's own trains as it does uncaptured.

From the state at capture, a few steps are made operation by operation and as many by replay, on the same
rows. Where they part, what the host computes in each step is frozen in the graph: the capture carries the
difference, since the uncaptured steps are the same program and repeat themselves. Must not: leave a trace;
all state is put back.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from spec.errors import RuleError, few
from torch_impl.graph.adapt import Captured
from torch_impl.graph.neutral import SavedState
from torch_impl.graph.proof import STEPS, find_frozen
from torch_impl.memory import Arena
from torch_impl.own_optimizer import OwnUpdate

_RULE = "A captured optimizer trains as it does eagerly."
_MEND = (
    "keep what changes from step to step in tensors on the device, counters and rates too (torch.optim: "
    "capturable=True), or take --mode torch=eager"
)
_LEAST = 1e-4
"""Of a tensor's way, where a profile does not promise bits: atomics may leave two runs alike by chance."""


def prove_own(
    own: OwnUpdate, captured: Captured, arena: Arena, batch: dict[str, Tensor], exact: bool
) -> dict[str, Any]:
    """What was compared, for the record.

    Args:
      batch: this rank's rows on the device; all ranks call this together.
      exact: whether the profile promises bits.

    Raises:
      RuleError: replays train otherwise; the graph is closed.
    """
    whole, refused = captured.step, None
    rows = {name: values.cpu() for name, values in batch.items()}
    try:
        check_own(
            own,
            arena,
            eager=lambda: captured.program(batch),
            replay=lambda: _discard(whole(rows)),
            least=0.0 if exact else _LEAST,
        )
    except RuleError as error:
        refused = error
    whole.rewind()
    if failures := whole.agree(None if refused is None else refused.numbers):
        whole.close()
        raise refused or RuleError(_RULE, few(failures, 1), _MEND)
    return {"steps_compared": STEPS, "bits_compared": exact}


def check_own(
    own: OwnUpdate, arena: Arena, eager: Callable[[], None], replay: Callable[[], None], least: float
) -> None:
    """Refuses an optimizer whose replays train otherwise, or may; the state is as it was, in any case.

    Args:
      eager, replay: make one step of the arena; see `find_frozen`.

    Raises:
      RuleError: replays part from the eager steps; or numbers on the host change from step to step, though a
        few steps show nothing of it: every fifth step may be another one.
    """
    saved, held = SavedState([*arena.lasting(), *own.lasting()], arena.device), own.held()
    changed: list[str] = []

    def put_back() -> None:
        changed.extend(held.changed() if not changed else ())
        held.put_back()
        saved.put_back()

    try:
        frozen = find_frozen(eager, replay, put_back, lambda: arena.tensors("param"), least)
    finally:
        put_back()
    shown = few(changed, 3, ", ")
    if frozen is None and not changed:
        return
    if frozen is None:
        raise RuleError(
            _RULE,
            "its state on the host changes from step to step and would be frozen in the graph "
            f"({shown}); {STEPS} steps show nothing of it, and later ones may",
            _MEND,
        )
    cause = "its state on the host is frozen in the graph"
    cause += f" ({shown})" if changed else ", be it in what cannot be looked into"
    raise RuleError(
        _RULE,
        f"the captured optimizer trains otherwise than eager from step {frozen.step} on: {cause}; {frozen}; "
        "the eager steps repeat themselves, so the capture carries it, not the framework",
        _MEND,
    )


def _discard(number: int) -> None:
    """Of a step's number."""
