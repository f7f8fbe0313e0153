"""An MLP whose JAX side sums its products in another order."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=3, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of 64 numbers and targets of 8."""
    x_BI = np.random.default_rng([33, step]).standard_normal((8, 64), np.float32)
    return {"x": x_BI, "y": x_BI[:, :8] * x_BI[:, 1:9]}
