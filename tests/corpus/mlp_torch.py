"""A plain MLP in PyTorch, for cases whose model is no matter."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Affine, tanh, affine."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(12, 32)
        self.down = nn.Linear(32, 4)

    def forward(self, x_BI: Tensor) -> Tensor:
        """(B, 12) -> (B, 4)."""
        return self.down(self.hidden(x_BI))

    def hidden(self, x_BI: Tensor) -> Tensor:
        """(B, 12) -> (B, 32)."""
        return torch.tanh(self.up(x_BI))


def build() -> nn.Module:
    """The model."""
    return Model()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of the squared errors, and their number."""
    error_BO = model(batch["x"]) - batch["y"]
    return error_BO.square().sum(), error_BO.numel()
