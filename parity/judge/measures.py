"""How far apart two arrays are: as a whole, at the worst element, and where one is not finite.

All in float64. Must not: know a tolerance.
"""

from dataclasses import dataclass

import numpy as np

_GROUP_SHARE = 1e-6
"""A tensor much smaller than its group is measured against the group: its own scale may be rounding alone."""
_NOTHING = 1e-100


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What separates two arrays of one shape."""

    rms_rel: float | None
    """RMS of the difference / s; null where exactly one side is not finite somewhere."""
    max_rel: float | None
    """Largest |a - b| / max(|a|, |b|, s); null in the same case."""
    max_abs: float | None
    index: tuple[int, ...]
    """Where `max_rel` is reached; where only one side is finite, the first such place."""
    a: float
    b: float
    both_not_finite: int
    """Elements that are NaN, or the same infinity, on both sides; they are left out of the measures."""


def rms(array: np.ndarray) -> float:
    """Root mean square of the finite elements; 0 where there are none."""
    finite = array[np.isfinite(array)]
    # A mask's least number squared is infinite, and so is the root; no news to whoever reads the verdict.
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def scale(a: np.ndarray, b: np.ndarray, group_rms: float) -> float:
    """s: the size that a difference is measured against."""
    return max(rms(a), rms(b), _GROUP_SHARE * group_rms)


def measure(a: np.ndarray, b: np.ndarray, s: float, spikes: float = 0.0) -> Difference:
    """The difference of two arrays of one shape.

    Args:
      s: the size that it is measured against, `scale`'s for most; where it is 0, nothing may differ.
      spikes: share of the elements, the worst ones, that `rms_rel` leaves out; `max_rel` sees them.
    """
    assert a.shape == b.shape, (a.shape, b.shape)
    s = max(s, _NOTHING)
    same_oddity, odd = not_finite(a, b)
    if odd.any():
        index = unravel(int(odd.argmax()), a.shape)
        return Difference(
            rms_rel=None,
            max_rel=None,
            max_abs=None,
            index=index,
            a=float(a[index]),
            b=float(b[index]),
            both_not_finite=int(same_oddity.sum()),
        )
    with np.errstate(invalid="ignore"):
        distance = np.where(same_oddity, 0.0, np.abs(a - b))
    size = np.maximum(np.maximum(np.abs(a), np.abs(b)), s)
    size[same_oddity] = 1.0
    relative = distance / size
    index = unravel(int(relative.argmax()), a.shape)
    return Difference(
        rms_rel=_rms_without_spikes(distance, spikes) / s,
        max_rel=float(relative[index]),
        max_abs=float(distance.max()),
        index=index,
        a=float(a[index]),
        b=float(b[index]),
        both_not_finite=int(same_oddity.sum()),
    )


def not_finite(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where two arrays are NaN or the same infinity together, and where else they are not both finite."""
    alike = (np.isnan(a) & np.isnan(b)) | (np.isinf(a) & (a == b))
    return alike, ~(np.isfinite(a) & np.isfinite(b)) & ~alike


def _rms_without_spikes(distance: np.ndarray, spikes: float) -> float:
    kept = distance.reshape(-1)
    if spikes:
        count = max(1, int((1 - spikes) * kept.size))
        kept = np.partition(kept, count - 1)[:count]
    return float(np.sqrt(np.mean(np.square(kept))))


def unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an element by its number."""
    return tuple(int(i) for i in np.unravel_index(flat, shape))
