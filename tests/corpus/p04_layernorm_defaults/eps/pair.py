"""Rows of small variance."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=2, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows around zero, of a spread of 0.03 and less."""
    generator = np.random.default_rng([4, step])
    x_BI = generator.standard_normal((8, 16)) * np.geomspace(0.003, 0.03, 8)[:, None]
    return {"x": x_BI.astype(np.float32), "y": generator.standard_normal((8, 4), np.float32)}
