"""BatchNorm on four rows, whose variance over n and over n - 1 differ by a third."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(
    torch="../p24_momentum/torch_side.py",
    steps=3,
    optimizer=AdamW(),
    schedule=Schedule(kind="constant", peak_lr=1e-3),
)


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of 6 numbers and targets of 4."""
    x_BI = np.random.default_rng([25, step]).standard_normal((4, 6), np.float32)
    return {"x": 2 * x_BI + 1, "y": x_BI[:, :4] * x_BI[:, 1:5]}
