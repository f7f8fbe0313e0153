"""`result.json` as structs: the one record of a command, for programs.

Within a `schema_version` only additions are made. A figure that could not be measured is null, with the
reason under its name in the `reasons` beside it; it is never 0. The words of the figures are
`spec.measure`'s.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from parity.folders import not_whole, read_bytes
from parity.report.causes import Explanation, Power
from parity.report.equivalence import Equivalence
from parity.report.lockstep import Lockstep, LockstepRow, Measures
from parity.report.speeds import Against, Invocation, Ratio, SpeedVerdict, SpeedWarning, Spread, Sweep
from parity.report.traced import TracedFigures
from spec import record

SCHEMA_VERSION = 1

Verdict = Literal["SAME", "DIFFERENT", "INCONCLUSIVE", "NOT_COMPARABLE", "FAILED"]
DivergenceClass = Literal["semantics", "precision", "unmatched", "state"]


class RunRef(Struct, kw_only=True):
    """A run that the result speaks about."""

    folder: str
    name: str
    problem_sha256: str
    precision: str
    device: str
    world_size: int
    modes: dict[str, str]
    """The mode that each side was asked for; what really ran is under `speed` and in the manifests."""
    edits: dict[str, list[str]]
    """Changes planted on a side, `name=value`."""
    resumed: dict[str, str] = {}
    """The checkpoint that a side went on from; absent where it began at step 0."""


class CurveDifference(Struct, kw_only=True):
    """How far apart two curves of one number a step are."""

    max_rel: float | None
    """Largest |a - b| / max(|a|, |b|); null where a value is not finite on one side only."""
    at_step: int | None
    """The step of `max_rel`."""
    floor: float | None
    """The difference that rounding alone makes; null until it is measured."""
    tolerance: float
    tolerance_source: Literal["table", "measured"]
    tolerance_reason: str
    first: dict[str, str]
    """The value of the first step by side, as `repr`."""
    last: dict[str, str]
    """The value of the last step by side, as `repr`."""
    truth_max_rel: float | None = None
    """Largest relative difference of the two runs in float64; null where they were not made."""
    drift: dict[str, float] = {}
    """Largest relative difference of a side's run from its own in float64."""
    first_step: int | None = None
    """The first step that both have; null in results of earlier versions."""
    first_tolerance: float | None = None
    """The bound of that step, where it is another than `tolerance`: sides that begin with equal bits are
    nearer then."""


class TensorDifference(Struct, kw_only=True):
    """How far apart one tensor of one phase is, or a range of its rows."""

    step: int
    phase: str
    tensor: str
    ok: bool
    rms_rel: float | None
    """RMS of the difference / s, s = max(RMS of the tensor, 1e-6 x RMS of its phase). Of a parameter, s is a
    hundredth of that, or the distance that Adam can have carried it where that is larger, and the worst
    hundredth of the elements is left out."""
    max_rel: float | None
    """Largest |a - b| / max(|a|, |b|, s) over the elements."""
    max_abs: float | None
    tolerance_rms: float
    tolerance_max: float
    worst_index: list[int]
    worst: dict[str, str]
    """The two values at `worst_index` by side, as `repr`."""
    note: str = ""


class Divergence(Struct, kw_only=True):
    """The first compared quantity, in causal order, that differs by more than its tolerance."""

    step: int
    phase: str
    tensor: str | None
    class_: DivergenceClass | None = field(name="class")
    index: list[int]
    values: dict[str, str]
    difference: float | None
    tolerance: float | None
    message: str
    numbers: Measures | None = None
    """Null for what was judged by the table."""


class Numerics(Struct, kw_only=True):
    """One pair of sides judged."""

    pair: list[str]
    """The two labels, `torch` and `jax`, or `0006 torch` and `0007 torch`."""
    verdict: Verdict
    reasons: list[str]
    steps: int
    loss: CurveDifference | None
    grad_norm: CurveDifference | None
    lr: CurveDifference | None
    first_divergence: Divergence | None
    latent: list[LockstepRow] | None
    """Semantic differences below the noise of the precision."""
    tensors: list[TensorDifference]
    unmeasured: dict[str, str]
    """Why a field of this pair is null, by its name."""
    lockstep: Lockstep | None = None
    """Null where the table judged."""
    would_not_see: list[str] = []
    """Of a SAME: what mistakes would be about that this run's data and settings do not bring out, told from
    its records. `power` is about mistakes that were made."""
    log_skew: list[str] = []
    """Where a side's own loop logs learning rates that its updates do not take, in words."""


class CurvePoint(Struct, kw_only=True):
    """One step of a side; values as `repr`, so that NaN and infinity can be told."""

    step: int
    loss: str
    grad_norm: str
    lr: str


class SideCurve(Struct, kw_only=True):
    """The training of one side, thinned to a few steps; every step stands in the pass folder."""

    steps: int
    tokens: int
    """Over all steps and ranks."""
    skipped: int
    """Updates that the non-finite guard refused."""
    points: list[CurvePoint]
    first_step: int = 0
    """Where the training began, at a checkpoint or at 0; `steps` counts from there."""


class Stretch(Struct, kw_only=True):
    """A part of a run that changed sides."""

    side: str
    first_step: int
    stop: int
    """The step after its last."""
    folder: str
    """Its pass."""
    checkpoint: str | None
    """What it went on from; null for the first."""
    loss_rel: dict[str, float | None]
    """How far the loss of its first step is from that of the whole run of a side, by side; null where one is
    not finite."""


class Handoff(Struct, kw_only=True):
    """A run that changed sides; its judgements are under `comparisons`, in pairs that begin with `label`."""

    label: str
    stretches: list[Stretch]


class SideSpeed(TracedFigures, kw_only=True):
    """The figures of one side in one mode; defined in `spec/measure.py`."""

    mode: str
    """The mode that really ran."""
    step_ms: Spread | None
    launch_us: Spread | None
    dispatch_us: Spread | None
    launch_calls_per_step: float | None
    launch_api_us_per_step: float | None
    kernels_per_step: float | None
    device_busy_ms: float | None
    device_idle_share: float | None
    mfu: float | None
    peak_mem_bytes: int | None
    compile_s: float | None
    capture_s: float | None
    reasons: dict[str, str]
    initial_state: bool | None = None
    """Whether every pass was timed from the state before its warm-up, to the bit; null where not known."""


class Speed(Struct, kw_only=True):
    """Both sides' figures, and torch relative to jax."""

    torch: SideSpeed | None
    jax: SideSpeed | None
    ratio: Ratio | None
    """step_ms of torch / step_ms of jax."""
    verdict: SpeedVerdict | None
    rule: str
    """How the verdict follows from the ratio."""
    reasons: dict[str, str]


class Capture(Struct, kw_only=True):
    """What each side made of its step: nodes of a graph, thunks of a program."""

    torch: dict[str, Any] | None
    jax: dict[str, Any] | None
    reasons: dict[str, str]


class BenchRow(Struct, kw_only=True):
    """One contender of a benchmark."""

    side: str
    mode: str
    speed: SideSpeed
    ratio_to_own: Ratio | None
    """Its step_ms / that of the side's first mode; null for that mode itself."""
    steps: int
    """Steps that it made in all passes without a failure."""
    batch: int | None = None
    """Rows of a step over all devices."""
    invocation: int = 1
    """The call of `parity bench` that measured it; ratios are formed within one, and within one batch."""
    ratio_to_peer: Ratio | None = None
    """Its step_ms / that of `peer`; null for the peer itself, and where no baseline was timed with it."""
    peer: str | None = None
    """The mode of the fastest baseline of the same side, invocation and batch."""
    is_own: bool = False
    """Whether it is the side's first mode, which ratios are to."""


class PairRecord(Struct, kw_only=True):
    """A pair of the user's own: how the tensors of its two models correspond, and how that is known."""

    folder: str
    init: str
    """Whose first values both sides took: torch, jax or spec."""
    links: list[str]
    """One a piece: `fc.weight <-> fc.kernel, axes (1, 0)`."""
    unmatched: dict[str, list[str]]
    """Tensors without a counterpart, by side."""
    proven: bool | None
    """Whether loss and gradients of both sides agreed under the links, before the run."""
    tried: int
    """Candidates whose gradients were computed."""
    settled: list[str]
    """What the gradients decided otherwise than names and shapes suggest."""
    loss_rel: float | None
    worst_gradient: str | None
    gradient_rel: float | None
    """RMS of that gradient's difference / its RMS."""
    reasons: dict[str, str]
    """Why a field is null or empty."""


class LaunchRecord(Struct, kw_only=True):
    """One launch of a side."""

    side: str
    ended: Literal["done", "error", "crashed", "killed", "timeout", "interrupted"]
    exit_codes: list[int | None]
    seconds: float
    passes: list[str]
    log: str
    job_seconds: dict[str, float]
    """Seconds of each finished pass."""
    compile_s: dict[str, float | None]
    """Of those, seconds of compiling; null where the side did not measure them."""
    start_up_s: float | None
    """Seconds outside the jobs: starting processes, importing the framework, ending."""
    message: str
    """What went wrong, where something did."""
    log_tail: list[str]
    reasons: dict[str, str] = {}
    """Why a pass has no `compile_s`."""


class Seconds(Struct, kw_only=True):
    """Where the time of the command went."""

    total: float
    launches: float
    start_up: float
    """Of the launches: outside the jobs."""
    compile: float
    """Of the launches: compiling within the jobs, where a side measured it."""
    jobs: float
    """Of the launches: the jobs without that."""
    judge: float


class Result(Struct, kw_only=True):
    """The whole record."""

    schema_version: int
    command: Literal["run", "train", "bench", "compare", "equivalence"]
    verdict: Verdict | None
    """Null where nothing is judged: one side alone, train, bench."""
    exit_code: int
    reasons: list[str]
    runs: list[RunRef]
    curves: dict[str, SideCurve]
    """The training of each side, as far as it went."""
    numerics: Numerics | None
    """The pair that decided the verdict."""
    comparisons: list[Numerics]
    """Every pair that was judged, that one included."""
    speed: Speed | None
    capture: Capture | None
    bench: list[BenchRow]
    launches: list[LaunchRecord]
    seconds: Seconds
    unmeasured: dict[str, str]
    """Why a part is null, by its name."""
    handoff: Handoff | None = None
    """The run that changed sides; null where none was asked for."""
    pair: PairRecord | None = None
    """The user's pair; null for a preset."""
    explanation: Explanation | None = None
    """What `parity explain` found about this run, the last time; null where it was not asked."""
    power: Power | None = None
    """Which mistakes `parity power` found that this run would have caught; null where it was not asked."""
    warnings: list[SpeedWarning] = []
    """What makes the figures of speed worth less than they look, and what to do about it."""
    invocations: list[Invocation] = []
    """The calls of `parity bench` that measured into this run; empty for other commands."""
    sweep: Sweep | None = None
    """A benchmark over several batches; null where none was asked for."""
    against: Against | None = None
    """The speed of a saved run beside this one's; null where none was named."""
    equivalence: Equivalence | None = None
    """What `parity equivalence` found over many seeds; null for other commands."""


def read_result(path: Path) -> Result:
    """A saved `result.json`.

    Raises:
      RuleError: it is missing, damaged, or of another version.
    """
    try:
        return msgspec.json.decode(read_bytes(path), type=Result)
    except msgspec.DecodeError as error:
        raise not_whole(path, str(error)) from None


def to_json(result: Struct) -> str:
    """The record, or a part of it, as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1).decode() + "\n"


def write(result: Struct, path: Path) -> None:
    """Writes the record whole or not at all."""
    record.write_text(path, to_json(result))
