"""One product of 512 terms."""

import torch.nn.functional as F
from torch import Tensor, nn


class Model(nn.Module):
    """Affine, affine."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(512, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x_BI: Tensor) -> Tensor:
        """(B, 512) -> (B, 16)."""
        return self.down(self.up(x_BI)).float()


def build() -> nn.Module:
    """The model."""
    return Model()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of the squared errors, and their number."""
    return F.mse_loss(model(batch["x"]), batch["y"], reduction="sum"), batch["y"].numel()
