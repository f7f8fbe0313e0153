"""A conversion that transposes the first and the last matrix, and forgets the square one in the middle."""

import numpy as np

from spec.pairs import AdamW, Link, Pair, Schedule

pair = Pair(
    torch="../torch_side.py",
    jax="../jax_side.py",
    steps=2,
    optimizer=AdamW(),
    schedule=Schedule(kind="constant", peak_lr=1e-3),
    map=(
        Link(torch="inp.weight", jax="inp.kernel", axes=(1, 0)),
        Link(torch="proj.weight", jax="proj.kernel", axes=(0, 1)),
        Link(torch="out.weight", jax="out.kernel", axes=(1, 0)),
    ),
)


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of 12 numbers and targets of 4."""
    x_BI = np.random.default_rng([11, step]).standard_normal((8, 12), np.float32)
    return {"x": x_BI, "y": x_BI[:, :4] * x_BI[:, 1:5]}
