"""Which edge carries a difference, as it stands in `result.json` under `explanation`."""

from msgspec import Struct


class Edge(Struct, kw_only=True):
    """What lies between two ways to make the same step."""

    edge: str
    """`semantics`, `casts`, or a side with `precision`, `compiler`, `capture`."""
    between: list[str]
    """The two ways, `torch eager` and `torch inductor`."""
    in_run: bool
    """Whether it lies between the modes that the run took."""
    floors: float | None
    """The largest difference over all numbers and tensors of the step, in floors of rounding."""
    word: str
    """`clean`, `carries`, `differs` where it is not in the run, `not run`."""
    where: str | None
    """The first in causal order that is beyond the bound; where none is, the nearest to it."""
    rms_rel: float | None
    """RMS of the difference there over the tensor's scale."""
    errors: dict[str, float | None] = {}
    """RMS of each of the two from its side's float64 there, over the scale."""
    reason: str = ""
    """Why `floors` is null, or what else is known."""


class Attribution(Struct, kw_only=True):
    """The failing step made in every way that this machine has."""

    step: int
    modes: dict[str, str]
    """That the run took, by side."""
    bound: float
    """Floors beyond which an edge is not rounding."""
    whole: float | None
    """Floors between the two sides as they ran; below the bound this step alone has nothing to charge."""
    edges: list[Edge]
    carried_by: list[str]
    """Edges of the run beyond the bound, the largest first."""
    summary: str
    notes: list[str]
    folder: str
    seconds: float
