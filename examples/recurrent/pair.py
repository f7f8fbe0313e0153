"""A recurrent network that reads a sequence of numbers and says what their running sum became."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

ROWS, LENGTH, WIDTH = 8, 10, 3

pair = Pair(steps=10, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3), init="jax")


def batches(step: int) -> dict[str, np.ndarray]:
    """Sequences, and the sum of each."""
    x_BTI = np.random.default_rng([3, step]).standard_normal((ROWS, LENGTH, WIDTH), np.float32)
    return {"x": x_BTI, "y": x_BTI.sum((1, 2))[:, None]}
