"""A model of bigrams in PyTorch; labels are those of the next position already."""

import torch.nn.functional as F
from torch import Tensor, nn


def build() -> nn.Module:
    """Embedding, tanh, logits."""
    return nn.Sequential(nn.Embedding(17, 16), nn.Tanh(), nn.Linear(16, 17))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Sum of the losses of all positions that have a label, and their number."""
    logits_BTV, labels_BT = model(batch["ids"]), batch["labels"].long()
    losses = F.cross_entropy(
        logits_BTV.flatten(0, 1), labels_BT.flatten(), ignore_index=-100, reduction="sum"
    )
    return losses, (labels_BT >= 0).sum()
