"""A dense layer in float32; torch multiplies in float32 unless it is told otherwise."""

import torch.nn.functional as F
from torch import Tensor, nn


class Model(nn.Module):
    """Affine."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(256, 16)

    def forward(self, x_BI: Tensor) -> Tensor:
        """(B, 256) -> (B, 16)."""
        return self.dense(x_BI)


def build() -> nn.Module:
    """The model."""
    return Model()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of the squared errors, and their number."""
    return F.mse_loss(model(batch["x"]), batch["y"], reduction="sum"), batch["y"].numel()
