"""What an edit is, and what the catalogue says of each kind of edit.

Must not: know what an edit does; `step`, `weights`, `data` and the sides' `edits.py` do.
"""

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
    mend: dict[str, str | dict[float, str]] = field(default_factory=dict)
    """By side, how the edited form is written there: `{value}` stands for the value."""
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
