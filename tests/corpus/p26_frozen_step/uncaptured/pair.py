"""Adam whose step counter is a number of the host: right as it runs here, frozen where it is captured."""

import numpy as np

from spec.pairs import OwnOptimizer, Pair

pair = Pair(torch="torch_side.py", jax="../jax_side.py", steps=10, optimizer=OwnOptimizer())


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of 12 numbers and targets of 4."""
    x_BI = np.random.default_rng([26, step]).standard_normal((8, 12), np.float32)
    return {"x": x_BI, "y": x_BI[:, :4] * x_BI[:, 1:5]}
