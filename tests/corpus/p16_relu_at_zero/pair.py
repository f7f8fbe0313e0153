"""A ReLU that meets exact zeros: half of the rows are padding, and the bias starts at zero."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=2, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of 12 numbers, the last four of them padding, and targets of 4."""
    x_BI = np.random.default_rng([16, step]).standard_normal((8, 12), np.float32)
    x_BI[4:] = 0
    return {"x": x_BI, "y": np.ones((8, 4), np.float32)}
