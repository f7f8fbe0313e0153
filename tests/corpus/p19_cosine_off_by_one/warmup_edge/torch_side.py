"""The same cosine; the warm-up counts from 1."""

import math

import torch
from torch import nn

from tests.corpus.norm_mlp_torch import build, loss
from tests.corpus.scheduled_torch import Scheduled

__all__ = ["build", "loss", "optimizer"]

STEPS, WARMUP = 10, 2


def share(step: int) -> float:
    """Warm-up that moves in its first step already."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - WARMUP) / (STEPS - WARMUP))))


def optimizer(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """AdamW along the cosine."""
    return Scheduled(named_parameters, share)
