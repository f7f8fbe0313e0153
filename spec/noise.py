"""The noise of a rerun: parameters moved by up to one rounding, rows taken in another order.

Neither changes what a step means, so how far its results move is the difference that rounding makes. The
order of rows is moved too, because noise on the parameters alone does not show how a sum depends on its
order. A function of (rerun, step, name): both sides and the referee make the same. Must not: touch what an
optimizer keeps.
"""

import numpy as np

from spec import philox
from spec.data.rows import Batch
from spec.weights import Tensors


def moved(state: Tensors, rerun: int, roundoff: float) -> Tensors:
    """The state with each parameter p of it at p (1 + x roundoff), x uniform in [-1, 1), in its own dtype."""
    return {
        key: _moved(array, philox.key(rerun, "noise", key), roundoff) if key.startswith("param/") else array
        for key, array in state.items()
    }


def _moved(array: np.ndarray, key: int, roundoff: float) -> np.ndarray:
    x = (philox.bits_u64(key, array.size) >> np.uint64(11)) * 2.0**-52 - 1
    return (array.astype(np.float64) * (1 + roundoff * x.reshape(array.shape))).astype(array.dtype)


def reordered(rows: Batch, rerun: int, step: int, slices: list[slice]) -> Batch:
    """One rank's rows in another order; every micro-batch keeps its own rows.

    Args:
      slices: of the micro-batches, `spec.data.batches.micro_slices`.
    """
    order = []
    for k, cut in enumerate(slices):
        words = philox.bits_u64(philox.key(rerun, "order", step, k), cut.stop - cut.start)
        order.append(cut.start + np.argsort(words, kind="stable"))
    index = np.concatenate(order)
    return {name: array[index] for name, array in rows.items()}
