"""A small model with most of what the catalogue edits in models: both sides are the same."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule

ROWS, T, VOCAB = 4, 12, 11

pair = Pair(
    torch="torch_side.py",
    jax="jax_side.py",
    steps=6,
    micro_batches=2,
    optimizer=AdamW(weight_decay=0.1, max_norm=1.0),
    schedule=Schedule(kind="cosine", peak_lr=1e-2, warmup_steps=2, decay_steps=6, final_lr=1e-3),
)


def batches(step: int) -> dict[str, np.ndarray]:
    """Rows of differing lengths; labels beyond an end are -100."""
    generator = np.random.default_rng([11, step])
    tokens_BT = generator.integers(0, VOCAB, (ROWS, T + 1), dtype=np.int32)
    labels_BT = tokens_BT[:, 1:].copy()
    for row, length in enumerate(generator.integers(T // 2, T + 1, ROWS)):
        labels_BT[row, length:] = -100
    image_BCHW = generator.standard_normal((ROWS, 2, 6, 6), np.float32)
    return {"tokens": tokens_BT[:, :-1], "labels": labels_BT, "image": image_BCHW}
