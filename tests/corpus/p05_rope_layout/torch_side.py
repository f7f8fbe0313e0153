"""The model in PyTorch: rotary positions turn the two halves of a head."""

from functools import partial

from torch import nn

from tests.corpus.rotary_torch import Attention, loss, rotate_halves

__all__ = ["build", "loss"]


def build() -> nn.Module:
    """The model."""
    return Attention(partial(rotate_halves, theta=10000.0))
