"""The same cosine; the warm-up counts from 1."""

import math

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from tests.corpus.norm_mlp_torch import build, loss

__all__ = ["build", "loss", "optimizer"]


STEPS, WARMUP = 10, 2


def share(step: int) -> float:
    """Warm-up that moves in its first step already."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - WARMUP) / (STEPS - WARMUP))))


class Scheduled(torch.optim.AdamW):
    """AdamW with its LambdaLR, stepped once an update."""

    def __init__(self, named_parameters: list[tuple[str, nn.Parameter]], lr: float) -> None:
        super().__init__(named_parameters, lr=lr, weight_decay=0.0)
        self.scheduler = LambdaLR(self, share)

    def step(self, closure: None = None) -> None:
        """The update, then the next rate."""
        super().step(closure)
        self.scheduler.step()


def optimizer(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """AdamW along the cosine."""
    return Scheduled(named_parameters, lr=1e-3)
