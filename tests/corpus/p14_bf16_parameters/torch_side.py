"""Pure bfloat16: what Adam makes of a parameter is rounded to it at once."""

import torch
from torch import nn

from tests.corpus.norm_mlp_torch import build, loss

__all__ = ["build", "loss", "optimizer"]


class Bf16Adam(torch.optim.Adam):
    """Adam on parameters that are stored in bfloat16."""

    def step(self, closure: None = None) -> None:
        """The step, and its rounding."""
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.detach().copy_(parameter.detach().bfloat16())


def optimizer(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """Adam."""
    return Bf16Adam(named_parameters, lr=6e-4)
