"""The model in PyTorch: rotary positions turn the two halves of a head."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB, C, H, D = 13, 16, 2, 8
THETA = 10000.0


class Attention(nn.Module):
    """One causal attention layer with rotary positions, between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, C)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(C, C, bias=False) for _ in range(4))
        self.head = nn.Linear(C, VOCAB)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Logits (B, T, VOCAB)."""
        x_BTC = self.embed(tokens_BT)
        B, T, _ = x_BTC.shape
        q, k, v = (p(x_BTC).view(B, T, H, D).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        scores_BHTS = rotate(q) @ rotate(k).mT / D**0.5
        future_TS = torch.ones(T, T, dtype=torch.bool).triu(1)
        weights_BHTS = scores_BHTS.masked_fill(future_TS, float("-inf")).softmax(-1)
        return self.head(self.o_proj((weights_BHTS @ v).transpose(1, 2).reshape(B, T, C)))


def rotate(x_BHTD: Tensor) -> Tensor:
    """Halves of a head are paired."""
    T = x_BHTD.shape[-2]
    rates = THETA ** (-torch.arange(0, D, 2, dtype=x_BHTD.dtype) / D)
    angles = torch.arange(T, dtype=x_BHTD.dtype)[:, None] * rates
    cos, sin = torch.cos(angles), torch.sin(angles)
    a, b = x_BHTD.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def build() -> nn.Module:
    """The model."""
    return Attention()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of cross-entropies, and their number."""
    logits_BTV, labels_BT = model(batch["tokens"]), batch["labels"].long()
    return F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), reduction="sum"), labels_BT.numel()
