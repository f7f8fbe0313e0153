"""torch.optim.Adam: m_hat / (sqrt(v_hat) + eps)."""

import torch
from torch import nn

from tests.corpus.norm_mlp_torch import build, loss

__all__ = ["build", "loss", "optimizer"]


def optimizer(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """Adam."""
    return torch.optim.Adam(named_parameters, lr=1e-3, eps=1e-5)
