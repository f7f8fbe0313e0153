"""A square matrix between two that are not, in PyTorch: (out, in)."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Three affine maps."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.proj, self.out = nn.Linear(12, 64), nn.Linear(64, 64), nn.Linear(64, 4)

    def forward(self, x_BI: Tensor) -> Tensor:
        """(B, 12) -> (B, 4)."""
        return self.out(torch.tanh(self.proj(torch.tanh(self.inp(x_BI)))))


def build() -> nn.Module:
    """The model."""
    return Model()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of squared errors, and their number."""
    error_BO = model(batch["x"]) - batch["y"]
    return error_BO.square().sum(), error_BO.numel()
