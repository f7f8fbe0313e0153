"""A small residual convolution network with batch normalisation, on images of noise with ten labels."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

ROWS, SIDE, CHANNELS, LABELS = 8, 8, 3, 10

pair = Pair(steps=10, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


def batches(step: int) -> dict[str, np.ndarray]:
    """Images as JAX has them, channels last, and their labels."""
    generator = np.random.default_rng([1, step])
    images_BHWC = generator.standard_normal((ROWS, SIDE, SIDE, CHANNELS), np.float32)
    return {"images": images_BHWC, "labels": generator.integers(0, LABELS, ROWS).astype(np.int32)}
