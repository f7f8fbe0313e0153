"""One attention layer whose keys have a bias."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=3, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


def batches(step: int) -> dict[str, np.ndarray]:
    """Six vectors of 16 a row, and a target for each."""
    generator = np.random.default_rng([34, step])
    x_BTC = generator.standard_normal((4, 6, 16), np.float32)
    return {"x": x_BTC, "y": generator.standard_normal((4, 6, 16), np.float32)}
