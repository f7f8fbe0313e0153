"""A loss of small weight; clip_grad_norm_ divides by norm + 1e-6."""

import torch
from torch import nn

from tests.corpus import norm_mlp_torch
from tests.corpus.norm_mlp_torch import build

__all__ = ["build", "loss", "optimizer"]


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, int]:
    """One of several losses, of weight 0.02."""
    total, count = norm_mlp_torch.loss(model, batch)
    return 0.02 * total, count


class ClippedSgd(torch.optim.SGD):
    """SGD on gradients clipped at 0.01."""

    def step(self, closure: None = None) -> None:
        """Clips, then steps."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        torch.nn.utils.clip_grad_norm_(parameters, 0.01)
        super().step(closure)


def optimizer(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """Clipped SGD."""
    return ClippedSgd(named_parameters, lr=0.1)
