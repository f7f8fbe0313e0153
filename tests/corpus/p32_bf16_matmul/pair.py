"""A matrix product of 512 terms."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=3, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of 512 numbers and targets of 16."""
    x_BI = np.random.default_rng([32, step]).standard_normal((8, 512), np.float32)
    return {"x": x_BI, "y": x_BI[:, :16] * x_BI[:, 1:17]}
