"""An affine map and BatchNorm in PyTorch."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """(B, 6) -> (B, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 16, bias=False)
        self.norm = nn.BatchNorm1d(16)
        self.down = nn.Linear(16, 4)

    def forward(self, x_BI: Tensor) -> Tensor:
        """One row at a time but for the statistics."""
        return self.down(torch.relu(self.norm(self.up(x_BI))))


def build() -> nn.Module:
    """The model."""
    return Model()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of the squared errors, and their number."""
    error_BO = model(batch["x"]) - batch["y"]
    return error_BO.square().sum(), error_BO.numel()
