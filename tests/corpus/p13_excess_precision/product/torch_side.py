"""The product is rounded to bfloat16 where it is written."""

import torch.nn.functional as F
from torch import Tensor, nn


class Model(nn.Module):
    """Affine, product in bfloat16, affine."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.mix = nn.Linear(32, 24, bias=False)
        self.out = nn.Linear(24, 4)

    def forward(self, x_BI: Tensor) -> Tensor:
        """(B, 16) -> (B, 4)."""
        h_BH = self.up(x_BI).bfloat16() @ self.mix.weight.T.bfloat16()
        return self.out(h_BH.float())


def build() -> nn.Module:
    """The model."""
    return Model()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of the squared errors, and their number."""
    return F.mse_loss(model(batch["x"]), batch["y"], reduction="sum"), batch["y"].numel()
