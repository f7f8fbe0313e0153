"""A block between an embedding and a head that is the embedding again."""

import torch.nn.functional as F
from torch import Tensor, nn


class Model(nn.Module):
    """Embedding, one MLP block, head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(13, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.head = nn.Linear(16, 13, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Logits (B, T, 13)."""
        x_BTC = self.embed(tokens_BT)
        return self.head(x_BTC + self.down(F.relu(self.up(x_BTC))))


def build() -> nn.Module:
    """The model."""
    return Model()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of cross-entropies, and their number."""
    logits_BTV, labels_BT = model(batch["tokens"]), batch["labels"].long()
    return F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), reduction="sum"), labels_BT.numel()
