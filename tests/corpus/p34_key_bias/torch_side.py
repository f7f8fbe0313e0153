"""One head of attention in PyTorch; the bias of the keys shifts all scores of a query alike."""

import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Queries, keys, values, output."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(16, 16), nn.Linear(16, 16)
        self.value, self.out = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """(B, T, 16) -> (B, T, 16)."""
        scores_BTS = self.query(x_BTC) @ self.key(x_BTC).mT / 4
        return self.out(scores_BTS.softmax(-1) @ self.value(x_BTC))


def build() -> nn.Module:
    """The layer."""
    return Attention()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of the squared errors, and their number."""
    return F.mse_loss(model(batch["x"]), batch["y"], reduction="sum"), batch["y"].numel()
