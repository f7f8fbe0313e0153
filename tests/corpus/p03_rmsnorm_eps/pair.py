"""Rows of norm 1, 1e-2 and 1e-3."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=2, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


NORMS = (1.0, 1e-2, 1e-3, 1.0, 1e-2, 1e-3)


def batches(step: int) -> dict[str, np.ndarray]:
    """Directions at random, norms as above."""
    generator = np.random.default_rng([3, step])
    x_BI = generator.standard_normal((len(NORMS), 16), np.float32)
    x_BI *= np.array(NORMS, np.float32)[:, None] / np.linalg.norm(x_BI, axis=1, keepdims=True)
    return {"x": x_BI, "y": generator.standard_normal((len(NORMS), 4), np.float32)}
