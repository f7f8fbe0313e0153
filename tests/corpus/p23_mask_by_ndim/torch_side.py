"""Layers in a list; decay for whatever has two dimensions, as nanoGPT does it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layer(nn.Module):
    """x + affine(tanh(LayerNorm(x)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-5)
        self.fc = nn.Linear(width, width)

    def forward(self, x_BC: Tensor) -> Tensor:
        """(B, C) -> (B, C)."""
        return x_BC + self.fc(self.norm(x_BC).tanh())


class Model(nn.Module):
    """Two layers and an affine head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Layer(8) for _ in range(2))
        self.head = nn.Linear(8, 8)

    def forward(self, x_BC: Tensor) -> Tensor:
        """(B, C) -> (B, C)."""
        for block in self.blocks:
            x_BC = block(x_BC)
        return self.head(x_BC)


def build() -> nn.Module:
    """The model."""
    return Model()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of the squared errors, and their number."""
    return F.mse_loss(model(batch["x"]), batch["y"], reduction="sum"), batch["y"].numel()


def optimizer(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """AdamW; matrices decay."""
    parameters = [parameter for _, parameter in named_parameters]
    return torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=1e-3,
    )
