"""Two affine layers on batches that are small until step 70: gradients are clipped from there on alone."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

ROWS, D_IN, D_OUT, FIRST_LARGE = 8, 16, 4, 70

pair = Pair(
    torch="../../../../examples/toy_mlp/torch_side.py",
    jax="../../../../examples/toy_mlp/jax_side.py",
    steps=FIRST_LARGE + 5,
    optimizer=AdamW(max_norm=10.0),
    schedule=Schedule(kind="constant", peak_lr=1e-3),
)


def batches(step: int) -> dict[str, np.ndarray]:
    """Inputs, and the product of neighbours as targets."""
    scale = np.float32(3.0 if step >= FIRST_LARGE else 1.0)
    x_BI = scale * np.random.default_rng([7, step]).standard_normal((ROWS, D_IN), np.float32)
    return {"x": x_BI, "y": x_BI[:, :D_OUT] * x_BI[:, 1 : D_OUT + 1]}
