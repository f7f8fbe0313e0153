"""The model in PyTorch: a quarter of each head is rotated."""

import torch
from torch import Tensor, nn

from tests.corpus.rotary_torch import Attention, angles, loss

__all__ = ["build", "loss"]

ROTATED = 2


def rotate(x_BHTD: Tensor) -> Tensor:
    """The first ROTATED of a head's numbers, halves of them paired; the rest stays as it is."""
    cos, sin = angles(x_BHTD, 10000.0, ROTATED)
    a, b = x_BHTD[..., :ROTATED].chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x_BHTD[..., ROTATED:]], -1)


def build() -> nn.Module:
    """The model."""
    return Attention(rotate)
