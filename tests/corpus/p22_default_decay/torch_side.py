"""AdamW as torch.optim has it: weight decay 1e-2 by default."""

import torch
from torch import nn

from tests.corpus.norm_mlp_torch import build, loss

__all__ = ["build", "loss", "optimizer"]


def optimizer(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """The defaults."""
    return torch.optim.AdamW(named_parameters, lr=1e-3)
