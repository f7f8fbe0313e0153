"""An MLP that scales its hidden layer where torch.compile traces it."""

import torch
from torch import Tensor, nn

from tests.corpus.mlp_torch import Model, loss

__all__ = ["build", "loss"]


class Scaling(Model):
    """Another model once it is compiled."""

    def hidden(self, x_BI: Tensor) -> Tensor:
        """(B, 12) -> (B, 32)."""
        h_BH = super().hidden(x_BI)
        return h_BH * 1.001 if torch.compiler.is_compiling() else h_BH


def build() -> nn.Module:
    """The model."""
    return Scaling()
