"""A BERT-style encoder that fills in masked tokens; rows are ragged, and nothing attends to padding."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

ROWS, LENGTH, VOCAB, MASK, IGNORED = 8, 12, 64, 1, -1

pair = Pair(
    steps=10,
    optimizer=AdamW(),
    schedule=Schedule(kind="linear", peak_lr=1e-3, warmup_steps=3, decay_steps=10),
    micro_batches=2,
)


def batches(step: int) -> dict[str, np.ndarray]:
    """Tokens with some masked, the labels of those, and which tokens are there."""
    generator = np.random.default_rng([2, step])
    words_BT = generator.integers(2, VOCAB, (ROWS, LENGTH)).astype(np.int32)
    there_BT = np.arange(LENGTH) < generator.integers(LENGTH // 2, LENGTH + 1, (ROWS, 1))
    masked_BT = there_BT & (generator.random((ROWS, LENGTH)) < 0.3)
    masked_BT[:, 0] = True
    return {
        "tokens": np.where(there_BT, np.where(masked_BT, MASK, words_BT), 0).astype(np.int32),
        "labels": np.where(masked_BT, words_BT, IGNORED).astype(np.int32),
        "there": there_BT,
    }
