"""Rows of random tokens, for the cases whose model reads tokens."""

import numpy as np

VOCAB, ROWS = 13, 4


def random_tokens(seed: int, step: int, length: int) -> dict[str, np.ndarray]:
    """`tokens` and the next ones as `labels`, both (ROWS, length), int32."""
    tokens_BT = np.random.default_rng([seed, step]).integers(0, VOCAB, (ROWS, length + 1), dtype=np.int32)
    return {"tokens": tokens_BT[:, :-1], "labels": tokens_BT[:, 1:]}
