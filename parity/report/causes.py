"""What `parity explain` and `parity power` found, as it stands in `result.json`."""

from typing import Literal

from msgspec import Struct

from parity.report.attribution import Attribution
from parity.report.rules import UpdateRules


def finite(value: float) -> float:
    """A residual as it is written: -1 where it is not finite."""
    return value if value < float("inf") else -1.0


class EditTried(Struct, kw_only=True):
    """One edit that was made on the torch side."""

    edit: str
    """`name=value`."""
    closed: int
    """Numbers and tensors of the first phase that differed which it makes equal in float64."""
    opened: int
    """Of any phase, that it makes differ."""
    left: float
    """RMS of the first difference with it, over the tensor's scale; -1 where it is not finite."""


class Confirmed(Struct, kw_only=True):
    """An edit that makes the torch side equal to the JAX side, on held-out batches and first values too."""

    edit: str
    what: str
    """What the torch side then does."""
    was: list[str]
    """What stood there, as the torch side's model was seen to do it; empty for edits of the step."""
    mend: dict[str, str]
    """One line for each side: what to write in torch to get JAX's numbers, and what JAX does now."""


class CauseStep(Struct, kw_only=True):
    """One mistake peeled off."""

    first: str
    """The first difference without the edit."""
    before: float
    """Its RMS over the tensor's scale; -1 where it is not finite."""
    after: float
    """With the edit, on what was held out."""
    signatures: list[str]
    confirmed: list[Confirmed]
    """One; several where the data do not tell them apart; none where nothing of the catalogue helps."""
    refuted: list[str]
    """Edits that help here and not on what was held out."""
    tried: list[EditTried]
    failed: dict[str, str]
    """Edits whose pass broke off, and why."""
    limits: list[str] = []
    """What was not tried though it would look like this, in words; empty where an edit is confirmed."""


class Explanation(Struct, kw_only=True):
    """Why a run differs."""

    outcome: Literal["confirmed", "not identified", "in part", "none", "equal"]
    """`confirmed`: one edit a step, and nothing is left. `not identified`: nothing is left, and some step has
    several. `in part`: something is left after the confirmed ones. `none`: no edit helps. `equal`: in float64
    there is nothing to explain."""
    summary: str
    edits: list[str]
    """Together they make the torch side equal to the JAX side, as far as it goes."""
    steps: list[CauseStep]
    left: str | None
    """The first difference that is left; null where none is."""
    folder: str
    """Passes and, where something is left, the folder that reproduces it."""
    reproduction: str | None
    passes: int
    """Edited passes of the torch side; of optimizers of one's own, passes of both sides."""
    seconds: float
    attribution: Attribution | None = None
    """Which edge carries the difference; null where an edit explains all of it and nobody asked."""
    update_rules: UpdateRules | None = None
    """What each side's own optimizer does; null where both train with the built-in AdamW."""


class PowerRow(Struct, kw_only=True):
    """One mistake, made on the torch side of the run."""

    edit: str
    what: str
    caught: bool | None
    """Null where it cannot be made: nothing in the model meets it, or it is refused."""
    where: str
    """Where it is caught first, or why it is not."""
    difference: float | None
    """What the run would have seen there."""


class Power(Struct, kw_only=True):
    """Which mistakes a run would have caught, found by making them."""

    control: str
    """The verdict about the same side without a mistake."""
    caught: int
    missed: int
    rows: list[PowerRow]
    folder: str
    seconds: float
