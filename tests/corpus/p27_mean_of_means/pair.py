"""Rows of ragged length under gradient accumulation."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=3, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3), micro_batches=2)


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of 12 numbers, targets of 4, and which rows count: four of the first half, one of the second."""
    generator = np.random.default_rng([27, step])
    x_BI = generator.standard_normal((8, 12), np.float32)
    kept_B = np.array([1, 1, 1, 1, 1, 0, 0, 0], np.float32)
    return {"x": x_BI, "y": x_BI[:, :4] * x_BI[:, 1:5], "kept": kept_B}
