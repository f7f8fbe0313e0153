"""A mask of the dtype's least number is added to a bias that has it already: their sum is minus infinity."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

C = 16


class Mask(nn.Module):
    """Adds a bias of distance, which has the padding in it, and the padding."""

    def forward(self, scores_BTS: Tensor, real_BS: Tensor) -> Tensor:
        """(B, T, S) and (B, S) -> (B, T, S)."""
        at_S = torch.arange(scores_BTS.shape[-1])
        padding_BTS = (real_BS == 0).to(scores_BTS.dtype)[:, None] * torch.finfo(scores_BTS.dtype).min
        bias_BTS = -(at_S[:, None] - at_S).abs() + padding_BTS
        return scores_BTS + (bias_BTS + padding_BTS)


class Attention(nn.Module):
    """One head between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(13, C)
        self.query, self.key, self.value = (nn.Linear(C, C, bias=False) for _ in range(3))
        self.mask = Mask()
        self.head = nn.Linear(C, 13)

    def forward(self, tokens_BT: Tensor, real_BT: Tensor) -> Tensor:
        """Logits (B, T, 13)."""
        x_BTC = self.embed(tokens_BT)
        scores_BTS = self.query(x_BTC) @ self.key(x_BTC).mT / C**0.5
        weights_BTS = self.mask(scores_BTS, real_BT).softmax(-1)
        return self.head(weights_BTS @ self.value(x_BTC))


def build() -> nn.Module:
    """The model."""
    return Attention()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Sum of the cross-entropies of real tokens, and their number."""
    labels_BT = batch["labels"].long().masked_fill(batch["real"] == 0, -100)
    logits_BTV = model(batch["tokens"], batch["real"])
    return F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), reduction="sum"), (
        labels_BT >= 0
    ).sum()
