"""The model in PyTorch, with the theta of its configuration."""

from functools import partial

from torch import nn

from tests.corpus.rotary_torch import Attention, loss, rotate_halves

__all__ = ["build", "loss"]


def build() -> nn.Module:
    """The model."""
    return Attention(partial(rotate_halves, theta=500000.0))
