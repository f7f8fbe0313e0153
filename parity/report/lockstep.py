"""Steps that both sides made from the same states, measured, as they stand in `result.json`."""

from typing import Literal

from msgspec import Struct


class Measures(Struct, kw_only=True):
    """One tensor or number of a lockstep step, measured in every way. Relative means relative to `s`."""

    s: float
    """max(RMS of the truth, 1e-6 x RMS of its phase); of a parameter, of its update."""
    rms_rel: float | None
    """RMS of the difference of the two sides / s; null where one alone is not finite."""
    max_rel: float | None
    """Largest |a - b| / max(|a|, |b|, s)."""
    ulps: float | None
    """The difference at the worst element in spacings of the profile's dtype."""
    cosine: float | None
    mean_ratio: float | None
    """sum(a b) / sum(b b); of the truths where there are truths."""
    semantic_rms_rel: float | None
    """The same of the two float64 truths; null where there are none."""
    semantic_max_rel: float | None
    error: dict[str, float | None]
    """RMS of a side's difference from its own truth / s, by side."""
    error_in_floors: dict[str, float | None]
    """The same in floors."""
    further: str | None
    """The side further from its truth."""
    truth: dict[str, str]
    """The truths at the worst element, as `repr`."""
    floor_rms: float | None
    floor_max: float | None


class LockstepRow(Struct, kw_only=True):
    """What was found of one tensor or number of one step that both sides made from the same state."""

    step: int
    phase: str
    tensor: str | None
    finding: Literal["same", "latent", "semantics", "precision", "different", "unclear", "unmatched"]
    reason: str
    worst_index: list[int]
    worst: dict[str, str]
    """The two values there by side, as `repr`; of a parameter, its updates."""
    numbers: Measures | None


class Lockstep(Struct, kw_only=True):
    """Steps that both sides made from the same states, those of a float64 run."""

    probes: dict[str, str]
    """The steps, and why each was chosen."""
    compared: int
    """Tensors and numbers that were measured."""
    found: dict[str, int]
    """How many of them by finding."""
    reruns: int
    """Reruns that the floors come from, a side."""
    truths: bool
    """Whether both sides were computed in float64 too."""
    rows: list[LockstepRow]
    """Of every step and phase the row nearest to its bound, and all that do not agree."""
    notes: list[str]
