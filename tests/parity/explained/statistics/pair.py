"""A convolution with BatchNorm, written as each framework's defaults have it: three clashes."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(
    torch="torch_side.py",
    jax="jax_side.py",
    steps=4,
    optimizer=AdamW(),
    schedule=Schedule(kind="constant", peak_lr=1e-3),
)


def batches(step: int) -> dict[str, np.ndarray]:
    """Images (B, 3, 8, 8) and four numbers for each."""
    generator = np.random.default_rng([3, step])
    return {
        "image": generator.standard_normal((4, 3, 8, 8), np.float32),
        "y": generator.standard_normal((4, 4), np.float32),
    }
