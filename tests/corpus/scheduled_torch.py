"""AdamW with a LambdaLR of its own, for the cases that are about schedules; a case brings the shares."""

from collections.abc import Callable

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR


class Scheduled(torch.optim.AdamW):
    """AdamW with its LambdaLR, stepped once an update.

    Args:
      share: of the rate 1e-3, by step.
    """

    def __init__(
        self, named_parameters: list[tuple[str, nn.Parameter]], share: Callable[[int], float]
    ) -> None:
        super().__init__(named_parameters, lr=1e-3, weight_decay=0.0)
        self.scheduler = LambdaLR(self, share)

    def step(self, closure: None = None) -> None:
        """The update, then the next rate."""
        super().step(closure)
        self.scheduler.step()
