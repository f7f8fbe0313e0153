"""Four thousand losses cast to bfloat16 and back before they are summed."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=3, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of 16 numbers and targets of 64."""
    generator = np.random.default_rng([13, step])
    return {
        "x": generator.standard_normal((64, 16), np.float32),
        "y": generator.standard_normal((64, 64), np.float32),
    }
