"""Prompts of 4 tokens."""

import numpy as np

from spec.pairs import AdamW, Pair, Schedule
from tests.corpus.tokens import random_tokens

pair = Pair(
    torch="../torch_side.py",
    jax="../jax_side.py",
    steps=2,
    optimizer=AdamW(),
    schedule=Schedule(kind="constant", peak_lr=1e-3),
)


def batches(step: int) -> dict[str, np.ndarray]:
    """Tokens at random, and the next ones as labels."""
    return random_tokens(7, step, 4)
