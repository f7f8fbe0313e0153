"""What a row of learning rates is: a constant, a warm-up, a cosine or a line, with its denominators.

Must not: know where the rates come from.

Legend: S steps.
"""

from dataclasses import dataclass

import numpy as np

from parity.explain.fit import rounded

ALIKE = 3e-7
"""Relative to the peak: schedules are computed in float32 here and there."""


@dataclass(frozen=True)
class Shape:
    """A schedule that gives the rates."""

    words: str
    known: bool
    length: float
    """How much there is to write down."""
    warmup: str = ""
    """The part of the warm-up, in words."""
    decay: str = ""
    """The part after it, in words."""


def shape_of(rates_S: np.ndarray) -> Shape:
    """The simplest schedule that gives these rates; their own words where none does."""
    if not np.isfinite(rates_S).all() or not np.abs(rates_S).max(initial=0.0):
        return Shape("no learning rate", False, 99.0)
    for warm in range(len(rates_S) - 1):
        found = _from(rates_S, warm)
        if found:
            return found
    return _stairs(rates_S) or Shape("of no known shape", False, 6.0 * len(rates_S))


def _stairs(rates_S: np.ndarray) -> Shape | None:
    """Constants one after another, as a rate that drops now and then; three steps each, on average."""
    peak = np.abs(rates_S).max()
    starts = [0, *(np.flatnonzero(np.abs(np.diff(rates_S)) > ALIKE * peak) + 1)]
    if len(starts) * 3 > len(rates_S):
        return None
    levels = [_short(rates_S[start]) for start in starts]
    later = [f"from step {start} on {level}" for start, level in zip(starts[1:], levels[1:], strict=True)]
    words = f"constant {', '.join([levels[0], *later])}"
    return Shape(words, True, sum(3.0 + len(level) for level in levels), "", words)


def _from(rates_S: np.ndarray, warm: int) -> Shape | None:
    """With a warm-up of the first `warm` steps."""
    after = _after(rates_S, warm)
    if after is None:
        return None
    words, peak, length = after
    if warm == 0:
        return Shape(words, True, length, "", words)
    head = _warmup(rates_S[:warm], peak)
    if head is None:
        return None
    return Shape(f"{head}, then {words}", True, length + 4.0, head, words)


def _warmup(head: np.ndarray, peak: float) -> str | None:
    """Rates peak * (t + a) / b of the first steps."""
    if len(head) == 1:
        share = head[0] / peak
        if abs(share) < ALIKE:
            return "warm-up from 0"
        over = 1 / share
        return f"warm-up (t + 1) / {over:.6g}" if abs(over - round(over)) < 1e-6 and over > 1 else None
    slope = (head[-1] - head[0]) / (len(head) - 1)
    if head[-1] - head[0] <= ALIKE * peak or not is_same(head, head[0] + slope * np.arange(len(head)), peak):
        return None
    first, over = head[0] / slope, peak / slope
    if abs(first - round(first)) > 1e-5 or abs(over - round(over)) > 1e-5:
        return f"warm-up by {_short(slope)} a step from {_short(head[0])}"
    numerator = f"(t + {round(first)})" if round(first) else "t"
    return f"warm-up {numerator} / {round(over)}"


def _after(rates_S: np.ndarray, start: int) -> tuple[str, float, float] | None:
    """(words, peak, length) of the rates from `start` on, which begin to fall where they begin."""
    rest, t = rates_S[start:], np.arange(len(rates_S) - start, dtype=float)
    if is_same(rest, np.full_like(rest, rest.mean()), rest[0]):
        return f"constant {_short(rest.mean())}", float(rest.mean()), 1.0 + len(_short(rest.mean()))
    if len(rest) < 3 or bool((np.diff(rest) > ALIKE * abs(rest[0])).any()):
        return None
    for free in (False, True):
        for first in (0, 1, -1):
            for kind in ("cosine", "linear"):
                for over in range(2, 4 * len(rates_S) + 1):
                    part = np.clip((t + first) / over, 0.0, 1.0)
                    share = 0.5 * (1 + np.cos(np.pi * part)) if kind == "cosine" else 1 - part
                    if (share > 0).sum() + (share == 0).any() < (4 if free else 2 + bool(first)):
                        continue
                    found = _linear(rest, share, free)
                    if found is None:
                        continue
                    peak, final = found
                    begins = start - first
                    to = f" to {_short(final)}" if final else ""
                    words = f"{kind} from {_short(peak)}{to} over {over} steps from step {begins} on"
                    return words, peak, 3.0 + len(_short(peak)) + (3.0 if free else 0.0) + abs(first)
    return None


def _linear(rest: np.ndarray, share: np.ndarray, free: bool) -> tuple[float, float] | None:
    """(peak, final) with final + (peak - final) * share the rates."""
    if not free:
        peak = float((rest @ share) / (share @ share))
        return (peak, 0.0) if peak > 0 and is_same(rest, peak * share, peak) else None
    columns = np.stack([share, 1 - share], axis=1)
    (peak, final), *_ = np.linalg.lstsq(columns, rest, rcond=None)
    if peak <= 0 or final < 0 or not is_same(rest, columns @ np.array([peak, final]), peak):
        return None
    return float(peak), float(final)


def is_same(a: np.ndarray, b: np.ndarray, scale: float) -> bool:
    """Whether numbers are alike, relative to a scale."""
    return bool(np.abs(a - b).max(initial=0.0) <= ALIKE * abs(scale))


def _short(value: float) -> str:
    return f"{rounded(value):.6g}"
