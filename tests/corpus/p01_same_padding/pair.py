"""Images of an even size, and labels of ten classes."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=2, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


def batches(step: int) -> dict[str, np.ndarray]:
    """Images as JAX has them, channels last."""
    generator = np.random.default_rng([1, step])
    images_BHWC = generator.standard_normal((4, 8, 8, 3), np.float32)
    return {"images": images_BHWC, "labels": generator.integers(0, 10, 4, dtype=np.int32)}
