"""The model of the cases that are about optimizers, in PyTorch: affine, LayerNorm, tanh, affine."""

import torch.nn.functional as F
from torch import Tensor, nn


class NormMlp(nn.Module):
    """(B, 12) -> (B, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(12, 16)
        self.norm = nn.LayerNorm(16, eps=1e-5)
        self.down = nn.Linear(16, 4)

    def forward(self, x_BI: Tensor) -> Tensor:
        """One row an example."""
        return self.down(self.norm(self.up(x_BI)).tanh())


def build() -> nn.Module:
    """The model."""
    return NormMlp()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of the squared errors, and their number."""
    return F.mse_loss(model(batch["x"]), batch["y"], reduction="sum"), batch["y"].numel()
