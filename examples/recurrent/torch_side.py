"""The recurrent network in PyTorch.

torch.nn.LSTM has two biases where one would do, and flax has one; so the cell is written out, its gates fused
in torch's order.
"""

import torch
from torch import Tensor, nn


class Lstm(nn.Module):
    """Input, forget, cell and output gate as one product each for the input and for the state before."""

    def __init__(self, d_in: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.from_input = nn.Linear(d_in, 4 * width, bias=False)
        self.from_state = nn.Linear(width, 4 * width)

    def forward(self, x_BTI: Tensor) -> Tensor:
        """(B, T, I) -> the last state (B, H)."""
        state_BH = cell_BH = x_BTI.new_zeros(len(x_BTI), self.width)
        for x_BI in x_BTI.unbind(1):
            gates = self.from_input(x_BI) + self.from_state(state_BH)
            i_BH, f_BH, g_BH, o_BH = gates.chunk(4, dim=-1)
            cell_BH = torch.sigmoid(f_BH) * cell_BH + torch.sigmoid(i_BH) * torch.tanh(g_BH)
            state_BH = torch.sigmoid(o_BH) * torch.tanh(cell_BH)
        return state_BH


class Reader(nn.Module):
    """The cell, and an affine layer on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = Lstm(3, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x_BTI: Tensor) -> Tensor:
        """(B, T, I) -> (B, 1)."""
        return self.out(self.cell(x_BTI))


def build() -> nn.Module:
    """The model; its first values are JAX's, as `pair.py` says."""
    return Reader()


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
    """Sum of the squared errors, and their number."""
    error_B1 = model(batch["x"]) - batch["y"]
    return error_B1.square().sum(), error_B1.numel()
