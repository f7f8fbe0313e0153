"""Gradients of norm 0.02 to 0.05, clipped at 0.01 in each framework's way."""

import numpy as np

from spec.pairs import OwnOptimizer, Pair

pair = Pair(steps=6, optimizer=OwnOptimizer(), precision="f64")


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of 12 numbers and targets of 4."""
    x_BI = np.random.default_rng([18, step]).standard_normal((8, 12), np.float32)
    return {"x": x_BI, "y": x_BI[:, :4] * x_BI[:, 1:5]}
