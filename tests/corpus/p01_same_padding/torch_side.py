"""The port in PyTorch: padding=1 on all sides."""

import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    """Two convolutions, the first with stride 2, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 10)

    def forward(self, images_BHWC: Tensor) -> Tensor:
        """(B, H, W, 3) -> logits (B, 10)."""
        x_BCHW = F.relu(self.conv0(images_BHWC.permute(0, 3, 1, 2)))
        x_BCHW = F.relu(self.conv1(x_BCHW))
        return self.head(x_BCHW.mean(dim=(2, 3)))


def build() -> nn.Module:
    """The model."""
    return Net()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of cross-entropies, and their number."""
    labels_B = batch["labels"].long()
    return F.cross_entropy(model(batch["images"]), labels_B, reduction="sum"), len(labels_B)
