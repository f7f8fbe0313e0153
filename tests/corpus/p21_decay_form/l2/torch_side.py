"""torch.optim.Adam adds the decay to the gradient."""

import torch
from torch import nn

from tests.corpus.norm_mlp_torch import build, loss

__all__ = ["build", "loss", "optimizer"]


def optimizer(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """Adam with weight_decay."""
    return torch.optim.Adam(named_parameters, lr=1e-3, weight_decay=0.1)
