"""What a trace adds to the figures of a side, as it stands in `result.json`."""

from msgspec import Struct


class Distribution(Struct, kw_only=True):
    """Raw samples of one kind, by their quantiles; in us."""

    n: int
    p50: float
    p90: float
    max: float


class Gaps(Distribution, kw_only=True):
    """Times between two pieces of a device's work at which it ran nothing."""

    per_step: float
    """How many there are in a step."""
    share: float
    """Their sum / the span of the traced steps."""


class NodeCount(Struct, kw_only=True):
    """One kind of work in one step: as many as the side recorded of its graph or program, and as traced."""

    kind: str
    recorded: float
    traced: float
    agree: bool | None
    """Null where one recorded piece can be several on the device."""


class TraceRecord(Struct, kw_only=True):
    """Where the traced figures of a side come from."""

    folder: str
    """The pass; `trace.json` and `trace.perfetto.json` (open it at ui.perfetto.dev) lie in it."""
    instrument: str
    """cupti, kineto or jax.profiler."""
    reason: str | None
    """Why not CUPTI."""
    device: str
    steps: int
    """Training steps that the figures are of."""
    step_ms: float | None
    """Median time from one traced step's call to the next one's: against `step_ms` of the timed passes it
    tells what tracing cost."""
    same_program: bool
    """Whether a timed pass ran the same program."""
    same_end_state: bool
    """Whether a timed pass ended in the same bits."""
    nodes: list[NodeCount]
    reasons: dict[str, str]
    """Why `nodes` is empty, and what was overlooked."""


class TracedFigures(Struct, kw_only=True):
    """Figures that only a trace gives, beside those that stand among a side's others."""

    launch_calls_by_api: dict[str, float] | None = None
    graph_updates_per_step: float | None = None
    graph_update_calls_by_api: dict[str, float] | None = None
    gap_us: Gaps | None = None
    exposed_communication_ms: float | None = None
    launch_latency_us: Distribution | None = None
    trace: TraceRecord | None = None
    """Null where no trace was made."""
