"""The smallest pair: two affine layers, SiLU between them, a squared error."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

ROWS, D_IN, D_OUT = 8, 16, 4

pair = Pair(
    torch="torch_side.py",
    jax="jax_side.py",
    steps=20,
    optimizer=AdamW(weight_decay=0.1, max_norm=1.0),
    schedule=Schedule(kind="constant", peak_lr=1e-3),
)


def batches(step: int) -> dict[str, np.ndarray]:
    """The whole batch of a step, rows first; the same arrays whenever it is asked for the same step."""
    generator = np.random.default_rng([7, step])
    x_BI = generator.standard_normal((ROWS, D_IN), np.float32)
    return {"x": x_BI, "y": x_BI[:, :D_OUT] * x_BI[:, 1 : D_OUT + 1]}
