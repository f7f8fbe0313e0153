"""The model of the cases that are about rotary positions, in PyTorch; a case brings how it rotates."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB, C, H, D = 13, 16, 2, 8


class Attention(nn.Module):
    """One causal attention layer between an embedding and a head.

    Args:
      rotate: turns queries and keys (B, H, T, D) by their positions.
    """

    def __init__(self, rotate: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.rotate = rotate
        self.embed = nn.Embedding(VOCAB, C)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(C, C, bias=False) for _ in range(4))
        self.head = nn.Linear(C, VOCAB)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Logits (B, T, VOCAB)."""
        x_BTC = self.embed(tokens_BT)
        B, T, _ = x_BTC.shape
        q, k, v = (p(x_BTC).view(B, T, H, D).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        scores_BHTS = self.rotate(q) @ self.rotate(k).mT / D**0.5
        future_TS = torch.ones(T, T, dtype=torch.bool).triu(1)
        weights_BHTS = scores_BHTS.masked_fill(future_TS, float("-inf")).softmax(-1)
        return self.head(self.o_proj((weights_BHTS @ v).transpose(1, 2).reshape(B, T, C)))


def angles(x_BHTD: Tensor, theta: float, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines (T, size / 2) of the angles by which pairs among `size` numbers are turned."""
    rates = theta ** (-torch.arange(0, size, 2, dtype=x_BHTD.dtype) / size)
    angles = torch.arange(x_BHTD.shape[-2], dtype=x_BHTD.dtype)[:, None] * rates
    return torch.cos(angles), torch.sin(angles)


def rotate_halves(x_BHTD: Tensor, theta: float) -> Tensor:
    """Halves of a head are paired."""
    cos, sin = angles(x_BHTD, theta, x_BHTD.shape[-1])
    a, b = x_BHTD.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of cross-entropies, and their number."""
    logits_BTV, labels_BT = model(batch["tokens"]), batch["labels"].long()
    return F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), reduction="sum"), labels_BT.numel()
