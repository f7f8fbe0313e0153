"""A pair of the user's own: the same model and loss in two files, one for each framework.

What is compared is the pair's name and the parameter table, which the models themselves tell; where the
files stand, and how the tensors of one lie in the other, are no part of the problem. Must not: import a
side's file.
"""

from dataclasses import dataclass

from spec.mapping.links import Link
from spec.params import ParamSpec


@dataclass(frozen=True, kw_only=True)
class PairSizes:
    """The parameters as the torch side describes them; those of the side that runs, where one runs alone."""

    pair: str = ""
    """Name of the pair's folder. Other models can have the same parameters, and are another problem; a pair
    whose files were changed since is still the same, so that what the change did can be judged."""
    parameters: tuple[ParamSpec, ...] = ()
    """Empty until a side was asked."""


@dataclass(frozen=True, kw_only=True)
class PairFiles:
    """What a worker needs of a pair, beside the problem."""

    torch: str
    """The torch side's file; it has `build()` and `loss(model, batch)`."""
    jax: str
    init: str = "torch"
    """Whose first values both sides take: `torch`, `jax`, `spec`, or `own`, which must be equal."""
    links: tuple[Link, ...] = ()
    """How the tensors correspond, the user's own entries to begin with; all of them once it is settled."""
    described: str | None = None
    """Folder in which the torch side described itself, for the JAX side to be matched with."""
    computes: str = "float32"
    """What the run that is asked about computes in. A default that hangs on the dtype, as the eps of torch's
    RMSNorm does, is that dtype's in the float64 passes about the run too."""
    initial: str | None = None
    """File of first values, `param/NAME` and `buffer/NAME`, for all runs."""
    over_one: tuple[str, ...] = ()
    """Functions that work between positions and never had more than one, as the torch side was seen."""

    def file(self, side: str) -> str:
        """The file of one side."""
        return self.torch if side == "torch" else self.jax
