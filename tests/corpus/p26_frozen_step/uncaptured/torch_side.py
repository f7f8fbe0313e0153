"""Adam as people write it by hand: Python counts the steps, and a capture has the count as a constant."""

import torch
from torch import nn

from tests.corpus.norm_mlp_torch import build, loss

__all__ = ["build", "loss", "optimizer"]


class HostAdam(torch.optim.Optimizer):
    """Adam; `num_steps` is on the host."""

    def __init__(self, named_parameters: list[tuple[str, nn.Parameter]], lr: float) -> None:
        super().__init__(named_parameters, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8})
        self.num_steps = 0

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """One update."""
        self.num_steps += 1
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                mean = state["m"] / (1 - beta1**self.num_steps)
                spread = (state["v"] / (1 - beta2**self.num_steps)).sqrt() + group["eps"]
                p.addcdiv_(mean, spread, value=-group["lr"])


def optimizer(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """Adam."""
    return HostAdam(named_parameters, lr=1e-3)
