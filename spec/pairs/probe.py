"""The weights at which two models are asked what they compute, so that their tensors can be told apart.

First values are moved a little: where all biases are zero, or a last layer is, exchanged tensors or missing
gradients would not show. Must not: touch files.
"""

import numpy as np

from spec import philox
from spec.weights import Tensors

_SHARE = 0.1
"""Of a tensor's own spread."""
_LEAST = 0.02
"""For tensors of equal values, such as zeros and ones."""

_ZERO, _NEARLY = 1e-9, 1e-6
"""A gradient that is smaller than these shares of the whole model's, on one side and on the other, is zero
but for rounding. The other side's may be float32's: some layers compute so within a float64 model."""


def probe_values(initial: Tensors) -> Tensors:
    """Every tensor with normal noise on it, a function of its name and values."""
    moved = {}
    for name, array in initial.items():
        spread = float(array.std()) if array.size else 0.0
        noise = philox.normals(philox.key(0, "probe", name), array.shape, _SHARE * spread or _LEAST)
        moved[name] = (array + noise).astype(array.dtype)
    return moved


def distances(one: Tensors, other: Tensors) -> dict[str, float]:
    """RMS(one - other) / RMS(one) of each tensor; of one that is tiny, relative to the whole model's."""
    floor = 1e-6 * max(whole_rms(one), whole_rms(other))
    found = {}
    for name, array in one.items():
        difference = np.asarray(array, np.float64) - other[name]
        size = max(_rms(array), _rms(other[name]), floor)
        found[name] = _rms(difference) / size if difference.any() else 0.0
        if not np.isfinite(found[name]):
            found[name] = float("inf")
    return found


def zero_rows(one: Tensors, other: Tensors) -> dict[str, tuple[int, int]]:
    """Rows [start, stop) of each tensor whose exact gradient is zero, by what rounding left of it on both
    sides; a tensor is left out where none is, or where they are not neighbours.

    Rows that nothing reads, as of tokens that do not occur, are zero to the bit and need no mention. But
    where rounding shows in some rows and no row is more than that, the whole tensor is meant: a unit may be
    dead on so few rows of a batch.
    """
    size, found = max(whole_rms(one), whole_rms(other)), {}
    for name, array in one.items():
        if not array.ndim:
            continue
        a_N, b_N = _largest(array), _largest(other[name])
        zero_N = (np.minimum(a_N, b_N) < _ZERO * size) & (np.maximum(a_N, b_N) < _NEARLY * size)
        noisy = np.flatnonzero(zero_N & (np.maximum(a_N, b_N) > 0))
        if noisy.size and zero_N.all():
            found[name] = 0, len(array)
        elif noisy.size and zero_N[noisy[0] : noisy[-1] + 1].all():
            found[name] = int(noisy[0]), int(noisy[-1]) + 1
    return found


def whole_rms(tensors: Tensors) -> float:
    """RMS over the elements of all tensors."""
    count = sum(array.size for array in tensors.values())
    total = sum(float(np.square(array, dtype=np.float64).sum()) for array in tensors.values())
    return (total / count) ** 0.5 if count else 0.0


def _rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64)))) if array.size else 0.0


def _largest(array: np.ndarray) -> np.ndarray:
    """The largest magnitude in each row."""
    return np.abs(array).reshape(len(array), -1).max(axis=1, initial=0.0)
