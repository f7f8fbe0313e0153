"""The same cosine, read one step later."""

import math

import torch
from torch import nn

from tests.corpus.norm_mlp_torch import build, loss
from tests.corpus.scheduled_torch import Scheduled

__all__ = ["build", "loss", "optimizer"]

STEPS, WARMUP = 10, 2


def share(step: int) -> float:
    """Of the step that comes next: the scheduler was stepped once too often."""
    step = step + 1
    if step < WARMUP:
        return step / WARMUP
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - WARMUP) / (STEPS - WARMUP))))


def optimizer(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """AdamW along the cosine."""
    return Scheduled(named_parameters, share)
