"""Mlp: affine, SiLU, affine, with a squared error: the smallest model that has every phase of a step.

Parameter names and shapes are the table's in `spec/workloads/mlp.py`. Counterpart: `jax_impl/models/mlp.py`.

Legend: B rows, I input width, H hidden width, O output width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spec.edits import Constants
from spec.precision import Profile
from spec.workloads.mlp import MlpSizes
from torch_impl.loss import squared_error


class Mlp(nn.Module):
    """The whole model."""

    def __init__(self, sizes: MlpSizes) -> None:
        super().__init__()
        self.fc1 = nn.Linear(sizes.d_in, sizes.d_hidden)
        self.fc2 = nn.Linear(sizes.d_hidden, sizes.d_out)

    def forward(self, x_BI: Tensor) -> Tensor:
        """(B, I) of any float dtype, rounded to that of the weights -> (B, O)."""
        h_BH = F.silu(self.fc1(x_BI.to(self.fc1.weight.dtype)))
        return self.fc2(h_BH)


def build(sizes: MlpSizes, profile: Profile, constants: Constants) -> Mlp:
    """The model with its parameters on the meta device; neither the profile nor a constant shapes it."""
    with torch.device("meta"):
        return Mlp(sizes)


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """(sum of squared errors, number of elements) of a batch of `x` (B, I) and `y` (B, O)."""
    return squared_error(model(batch["x"]), batch["y"])
