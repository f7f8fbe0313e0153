"""The residual network in PyTorch: channels first, so images are turned before they go in."""

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions and a shortcut; the width and the stride may change."""

    def __init__(self, d_in: int, d_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(d_in, d_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(d_out)
        self.conv2 = nn.Conv2d(d_out, d_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(d_out)
        self.shortcut = nn.Conv2d(d_in, d_out, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """(B, d_in, H, W) -> (B, d_out, H / stride, W / stride)."""
        short = x_BCHW if self.shortcut is None else self.shortcut(x_BCHW)
        hidden = F.relu(self.norm1(self.conv1(x_BCHW)))
        return F.relu(self.norm2(self.conv2(hidden)) + short)


class ResNet(nn.Module):
    """Stem, two blocks, mean over the image, head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.blocks = nn.ModuleList([Block(8, 8, 1), Block(8, 16, 2)])
        self.head = nn.Linear(16, 10)

    def forward(self, images_BHWC: Tensor) -> Tensor:
        """(B, H, W, 3) -> logits (B, 10)."""
        x_BCHW = F.relu(self.norm(self.stem(images_BHWC.permute(0, 3, 1, 2))))
        for block in self.blocks:
            x_BCHW = block(x_BCHW)
        return self.head(x_BCHW.mean(dim=(2, 3)))


def build() -> nn.Module:
    """The model in training mode."""
    return ResNet()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of the cross-entropies of some images, and their number."""
    labels_B = batch["labels"].long()
    return F.cross_entropy(model(batch["images"]), labels_B, reduction="sum"), len(labels_B)
