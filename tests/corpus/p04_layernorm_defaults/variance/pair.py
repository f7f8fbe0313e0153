"""Rows of a large mean and a small spread."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=2, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows around 4096, of a spread of 0.02."""
    generator = np.random.default_rng([4, step])
    x_BI = 4096 + 0.02 * generator.standard_normal((8, 16))
    return {"x": x_BI.astype(np.float32), "y": generator.standard_normal((8, 4), np.float32)}
