"""clip_grad_norm_ divides by norm + 1e-6."""

import torch
from torch import nn

from tests.corpus.norm_mlp_torch import build, loss

__all__ = ["build", "loss", "optimizer"]


class ClippedSgd(torch.optim.SGD):
    """SGD on gradients clipped at 1."""

    def step(self, closure: None = None) -> None:
        """Clips, then steps."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        super().step(closure)


def optimizer(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """Clipped SGD."""
    return ClippedSgd(named_parameters, lr=0.01)
