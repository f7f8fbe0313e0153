"""One wide affine map in float32."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=3, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of 256 numbers and targets of 16."""
    x_BI = np.random.default_rng([12, step]).standard_normal((8, 256), np.float32)
    return {"x": x_BI, "y": x_BI[:, :16] * x_BI[:, 1:17]}
