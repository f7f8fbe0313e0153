"""The kitchen in PyTorch. B rows, T positions, S attended to, C width 8, H 2 heads, D 4, V 11."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Model(nn.Module):
    """Image features added to every position, one attention block with rotary positions, one MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.conv = nn.Conv2d(2, 8, 3, stride=2, padding=(1, 1), bias=False)
        self.tie = nn.Parameter(torch.zeros(8))
        self.rms = nn.RMSNorm(8, eps=1e-6)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(8, 8, bias=False) for _ in range(4))
        self.ln = nn.LayerNorm(8, eps=1e-5)
        self.up, self.down, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 11)

    def forward(self, tokens_BT: Tensor, image_BCHW: Tensor) -> Tensor:
        """Logits (B, T, V)."""
        features_BC = torch.tanh(self.conv(image_BCHW)).mean((2, 3)) + torch.relu(self.tie)
        x_BTC = self.embed(tokens_BT) * math.sqrt(8) + features_BC[:, None]
        x_BTC = x_BTC + self.attend(self.rms(x_BTC))
        x_BTC = x_BTC + self.down(F.gelu(self.up(self.ln(x_BTC)), approximate="tanh"))
        return self.head(x_BTC)

    def attend(self, x_BTC: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        B, T, C = x_BTC.shape
        q, k, v = (p(x_BTC).view(B, T, 2, 4).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        scores_BHTS = rotate(q) @ rotate(k).mT * 0.5
        future_TS = torch.ones(T, T, dtype=torch.bool).triu(1)
        weights_BHTS = scores_BHTS.masked_fill(future_TS, -1e9).softmax(-1)
        return self.o_proj((weights_BHTS @ v).transpose(1, 2).reshape(B, T, C))


def rotate(x_BHTD: Tensor) -> Tensor:
    """Rotary positions, halves of a head paired."""
    T, D = x_BHTD.shape[-2:]
    rates = 10000.0 ** (-torch.arange(0, D, 2, dtype=x_BHTD.dtype) / D)
    angles = torch.arange(T, dtype=x_BHTD.dtype)[:, None] * rates
    a, b = x_BHTD.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def build() -> nn.Module:
    """The model with its first values."""
    return Model()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Sum of cross-entropies, and how many labels count."""
    logits_BTV, labels_BT = model(batch["tokens"], batch["image"]), batch["labels"].long()
    total = F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), reduction="sum")
    return total, (labels_BT != -100).sum()
