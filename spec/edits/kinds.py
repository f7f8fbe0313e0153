"""What an edit is, and what the catalogue says of each kind of edit.

Must not: know what an edit does; `step`, `weights`, `data` and the sides' `edits.py` do.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

Reach = Literal["step", "model", "weights", "data", "compiler", "refused"]
"""Where an edit acts: on a constant of the step; on calls and layers inside a model; on the order of elements
of its tensors; on the rows of a batch; on what the side's compiler may do. `refused`: nowhere, since the
difference is refused before a step."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One change of one constant or form."""

    name: str
    value: float
    target: str = ""
    """The one tensor that it is about, where it is about one."""


@dataclass(frozen=True)
class Range:
    """The numbers that a constant can be; by default all finite ones."""

    least: float = -math.inf
    most: float = math.inf
    ends: str = "[]"
    """Which end belongs to it, as mathematicians write it; infinity never does."""

    def __contains__(self, value: float) -> bool:
        above = value > self.least if self.ends[0] == "(" else value >= self.least
        below = value < self.most if self.ends[1] == ")" else value <= self.most
        return math.isfinite(value) and above and below

    def __str__(self) -> str:
        if self.most < math.inf:
            return f"in {self.ends[0]}{self.least:g}, {self.most:g}{self.ends[1]}"
        if self.least > -math.inf:
            return f"{'above' if self.ends[0] == '(' else 'at least'} {self.least:g}"
        return "a finite number"


NOT_NEGATIVE = Range(0.0)
POSITIVE = Range(0.0, ends="(]")
BELOW_ONE = Range(0.0, 1.0, ends="[)")
SHARE = Range(0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One line of the catalogue."""

    what: str
    """What the edited side does, `value` being the edit's."""
    reach: Reach
    shows: str
    """The first phase in causal order in which it can show."""
    signature: str
    """What its difference looks like there; see `parity.explain.signature`."""
    values: tuple[float, ...] = ()
    """Values that are tried. All of them where it has no `scale`; starting points where it has."""
    scale: Literal["", "linear", "log", "exp"] = ""
    """In which its effect is nearly linear, for solving an unknown value; empty where only `values` make
    sense."""
    number: type = float
    """The type of the value: float, int or bool."""
    within: Range = Range()
    """What a constant that has a `scale` can be."""
    mend: dict[str, str | dict[float, str]] = field(default_factory=dict)
    """By side, how the edited form is written there: `{value}` stands for the value."""
    factor: bool = False
    """Whether its value multiplies what stands there, so that a mend tells by how much more."""
    targeted: bool = False
    """Whether it names one tensor."""
    narrow: bool = False
    """Whether it rounds: two programs that round alike are no closer than their rounding."""
    torch: str = ""
    """Why the torch side cannot make it; empty where it can."""
    jax: str = ""
    """Why the JAX side cannot make it; empty where it can."""
    jax_pair: str = ""
    """Why the JAX side cannot make it in a user's model."""
