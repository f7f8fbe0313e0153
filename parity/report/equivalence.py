"""What `parity equivalence` found, as it stands in `result.json`."""

from typing import Literal

from msgspec import Struct

Outcome = Literal["EQUIVALENT", "DIFFERENT", "INCONCLUSIVE"]


class SeedRow(Struct, kw_only=True):
    """One seed, trained by both sides."""

    seed: int
    last: dict[str, float | None]
    """Mean loss of the last window by side; null where it is not finite."""
    difference: float | None
    """(torch - jax) / the mean of their sizes; null where one is not finite."""


class Equivalence(Struct, kw_only=True):
    """Whether both sides' last losses are equal within a margin, over many seeds."""

    outcome: Outcome | None
    """Null where a side did not finish every seed, or the sides were not given the same. In the result's
    `verdict`, EQUIVALENT is SAME."""
    quantity: str
    """What is compared: `loss`, the mean over the last `window` of the steps."""
    margin: float
    """Largest relative difference that counts as none; stated in `run.json` before the first seed ran."""
    window: float
    """Share of the steps."""
    alpha: float
    """Level of each one-sided test."""
    seeds: list[SeedRow]
    mean: float | None
    """Of the differences; null, as what follows, where there is no outcome or a loss is not finite."""
    spread: float | None
    """Standard deviation of the differences."""
    interval: list[float]
    """Of the mean, at 1 - 2 alpha; empty where there is none."""
    p: float | None
    """The larger p-value of the two one-sided tests."""
    seeds_needed: int | None
    """Seeds that would decide with a chance of 80 % if mean and spread are as seen; null where none would."""
    notes: list[str]
    """Why a field is null, or what would decide."""
