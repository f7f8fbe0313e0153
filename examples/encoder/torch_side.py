"""The encoder in PyTorch: torch's own layers, whose queries, keys and values are one fused projection."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, LAYERS = 16, 4, 2


class Encoder(nn.Module):
    """Embeddings, layers normalised after each addition, a head tied to the token embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(64, WIDTH)
        self.positions = nn.Embedding(12, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True
            )
            for _ in range(LAYERS)
        )
        self.bias = nn.Parameter(torch.zeros(64))

    def forward(self, tokens_BT: Tensor, there_BT: Tensor) -> Tensor:
        """Tokens (B, T) -> logits (B, T, V)."""
        x_BTC = self.tokens(tokens_BT) + self.positions.weight
        for layer in self.layers:
            x_BTC = layer(x_BTC, src_key_padding_mask=~there_BT)
        return x_BTC @ self.tokens.weight.T + self.bias


def build() -> nn.Module:
    """The model in training mode."""
    return Encoder()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Sum of the cross-entropies at the masked tokens, and their number."""
    logits_BTV = model(batch["tokens"], batch["there"])
    labels_BT = batch["labels"].long()
    total = F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten(), ignore_index=-1, reduction="sum")
    return total, (labels_BT >= 0).sum()
