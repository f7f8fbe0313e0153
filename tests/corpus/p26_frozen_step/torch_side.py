"""Adam as a captured graph replays it whose host read the step once: the counter stays 1."""

import torch
from torch import nn

from tests.corpus.norm_mlp_torch import build, loss

__all__ = ["build", "loss", "optimizer"]


class ReplayedAdam(torch.optim.Adam):
    """Adam without capturable=True: the bias correction of the captured step in every replay."""

    def step(self, closure: None = None) -> None:
        """The step, its counter as it was when it was captured."""
        for state in self.state.values():
            state["step"].zero_()
        super().step(closure)


def optimizer(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """Adam."""
    return ReplayedAdam(named_parameters, lr=1e-3)
