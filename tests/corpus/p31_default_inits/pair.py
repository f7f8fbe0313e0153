"""Each side begins with what its own framework draws."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=2, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3), init="own")


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of 12 numbers and targets of 4."""
    x_BI = np.random.default_rng([31, step]).standard_normal((8, 12), np.float32)
    return {"x": x_BI, "y": x_BI[:, :4] * x_BI[:, 1:5]}
