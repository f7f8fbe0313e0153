"""A warm-up, so that a rate logged one step early would be another."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

SCHEDULE = Schedule(kind="linear", peak_lr=1e-3, warmup_steps=2, decay_steps=3)
pair = Pair(steps=3, optimizer=AdamW(), schedule=SCHEDULE)


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of 12 numbers and targets of 4."""
    x_BI = np.random.default_rng([35, step]).standard_normal((8, 12), np.float32)
    return {"x": x_BI, "y": x_BI[:, :4] * x_BI[:, 1:5]}
