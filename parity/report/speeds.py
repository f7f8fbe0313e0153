"""Speed as it stands in `result.json`: spreads, ratios, warnings, sweeps, changes since a saved run."""

from typing import Literal

from msgspec import Struct

SpeedVerdict = Literal["FASTER", "SLOWER", "SAME", "AMBIGUOUS"]


class Spread(Struct, kw_only=True):
    """Raw samples summed up."""

    n: int
    median: float
    p10: float
    p90: float
    mad: float
    """Median of the absolute deviations from the median."""


class Ratio(Struct, kw_only=True):
    """A ratio of two medians with its 95 % interval."""

    median: float
    ci95: list[float]
    passes: list[float]
    """The ratio of each pair of passes, in the order they were run."""
    verdict: SpeedVerdict | None = None
    """Of the first relative to the second, by the rule beside the speed of a run."""
    settle: str | None = None
    """What would make an AMBIGUOUS ratio clear, in a sentence; null for a clear one."""


class SpeedWarning(Struct, kw_only=True):
    """Something that makes figures worth less than they look."""

    kind: Literal[
        "few windows",
        "one pass",
        "not the initial state",
        "first window",
        "drift",
        "clocks moved",
        "throttled",
        "GPU shared",
        "machine busy",
    ]
    where: str
    """The side and mode, or the launch, it was seen in."""
    found: str
    mend: str
    """What to do next."""


class Invocation(Struct, kw_only=True):
    """One call of `parity bench` that measured into the run folder."""

    number: int
    argv: list[str]
    utc: str
    host_hash: str
    windows: int
    """A pass."""
    steps_per_window: int
    ended: str
    """`done`, or how the launch ended that was not finished; `killed` where nobody wrote it down."""


class Crossing(Struct, kw_only=True):
    """A batch at which two contenders of a sweep take equally long; curves can cross more than once."""

    a: str
    b: str
    """`SIDE MODE`, as in the rows."""
    batch: float | None
    """Interpolated in the logarithms of batch and ratio; null where they do not cross within the sweep."""
    ci95: list[float | None]
    """Bounds; null where draws of the windows show no such crossing within the sweep."""
    below: str
    """The faster one at batches right below."""
    above: str
    """The faster one at batches right above."""
    batches: list[int] = []
    """At which both were measured together: all that it says anything of."""


class SweepPoint(Struct, kw_only=True):
    """One contender at one batch."""

    side: str
    mode: str
    batch: int
    """Rows of a step over all devices."""
    invocation: int
    step_ms: Spread
    fitted: bool
    """Whether the model was fitted on it; declared in `run.json` before anything was measured."""
    predicted_ms: float | None
    """By the model; null where it could not be fitted."""
    error: float | None
    """predicted_ms / median - 1."""


class HostModel(Struct, kw_only=True):
    """step_ms = max(host_ms, device_ms + device_ms_per_row * batch), of one side."""

    side: str
    host_ms: dict[str, float | None]
    """By mode; null where every declared point grows with the batch, so that the host never shows."""
    device_ms: float | None
    device_ms_per_row: float | None
    """Both null where no declared point grows with the batch."""
    reason: str
    """Why something is null; empty where nothing is."""


class Sweep(Struct, kw_only=True):
    """One benchmark over several batches."""

    batches: list[int]
    """Asked for, in rows of a step over all devices."""
    fitted: list[int]
    """Declared before measuring: the model is fitted on these and predicts the others."""
    points: list[SweepPoint]
    crossings: list[Crossing]
    model: list[HostModel]
    within: list[int]
    """How many predicted points lie within `target`, and how many there are."""
    target: float
    meaning: str
    """What host and device are on this machine."""


class SpeedChange(Struct, kw_only=True):
    """One figure now and in the saved run."""

    side: str
    mode: str
    batch: int
    figure: str
    """`step_ms.median`, `peak_mem_bytes` ..."""
    before: float
    now: float
    ratio: Ratio | None
    """now / before with its interval; null for a figure without samples, or where it was 0."""
    limit: str | None
    """Of `--fail-if`; null where none was given."""
    beyond_limit: bool
    beyond_noise: bool
    """Whether the interval leaves no change out; of a figure without samples, whether it changed."""
    failed: bool
    """Slower, or more, than the limit allows, and beyond noise."""
    before_call: int | None = None
    """The call of `parity bench` that measured the saved figure; null where there was one at most."""
    now_call: int | None = None


class Against(Struct, kw_only=True):
    """The speed of this run beside that of a saved one."""

    folder: str
    same_host: bool
    differences: list[str]
    """Versions, code and variables that are not as they were, which may be the cause."""
    changes: list[SpeedChange]
    unmeasured: dict[str, str]
    """Why a figure that was asked for could not be compared."""
