"""Embeddings times the square root of the width of Gemma, as Python computes it: 55.4256."""

import math

import torch.nn.functional as F
from torch import Tensor, nn

SCALE = math.sqrt(3072)


class Scaled(nn.Embedding):
    """An embedding times SCALE."""

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """(B, T) -> (B, T, C)."""
        return super().forward(tokens_BT) * SCALE


def build() -> nn.Module:
    """Embedding and head."""
    return nn.Sequential(Scaled(13, 16), nn.Linear(16, 13))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of cross-entropies, and their number."""
    logits_BTV, labels_BT = model(batch["tokens"]), batch["labels"].long()
    return F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), reduction="sum"), labels_BT.numel()
