"""A language model on labels that are shifted already."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=3, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


def batches(step: int) -> dict[str, np.ndarray]:
    """Eight tokens a row, and the token after each."""
    tokens_BT = np.random.default_rng([29, step]).integers(0, 17, (4, 9), np.int32)
    return {"ids": tokens_BT[:, :-1], "labels": tokens_BT[:, 1:]}
