"""Sequences of 64 tokens."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

pair = Pair(
    torch="../torch_side.py",
    jax="../jax_side.py",
    steps=2,
    optimizer=AdamW(),
    schedule=Schedule(kind="constant", peak_lr=1e-3),
)


VOCAB, T = 13, 64


def batches(step: int) -> dict[str, np.ndarray]:
    """Tokens at random, and the next ones as labels."""
    tokens_BT = np.random.default_rng([5, step]).integers(0, VOCAB, (4, T + 1), dtype=np.int32)
    return {"tokens": tokens_BT[:, :-1], "labels": tokens_BT[:, 1:]}
