"""Rows of tokens, the third of them padding throughout."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(steps=2, optimizer=AdamW(), schedule=Schedule(kind="constant", peak_lr=1e-3))


VOCAB, T = 13, 6


def batches(step: int) -> dict[str, np.ndarray]:
    """Tokens, labels, and which tokens are real."""
    tokens_BT = np.random.default_rng([9, step]).integers(0, VOCAB, (4, T + 1), dtype=np.int32)
    real_BT = np.arange(T) < np.array([T, 4, 0, 5])[:, None]
    return {"tokens": tokens_BT[:, :-1], "labels": tokens_BT[:, 1:], "real": real_BT.astype(np.int32)}
