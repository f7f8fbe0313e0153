"""Promotion: code full of casts gives what the same code without them gives in float64, and says where."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_impl.promote import promoting

X_BI = torch.linspace(-2, 2, 32, dtype=torch.float64).reshape(4, 8)


class Casting(nn.Module):
    """Casts as people do: to and fro, by factories, by autocast, by a constant that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 8, dtype=torch.float64)
        self.third = torch.tensor(1 / 3)

    def forward(self, x_BI: Tensor) -> Tensor:
        """(B, I) -> 0-dim."""
        h_BI = torch.softmax(self.linear(x_BI).float(), -1).to(x_BI.dtype)
        h_BI = h_BI * self.third + torch.ones(8) * 0.3
        h_BI = F.gelu(h_BI.bfloat16()).double()
        h_BI = F.layer_norm(h_BI.to(torch.float16), (8,)).to(x_BI.dtype)
        with torch.autocast("cpu", torch.bfloat16):
            h_BI = h_BI + (h_BI @ torch.eye(8, dtype=h_BI.dtype)).double()
        return (h_BI * torch.arange(8, dtype=torch.float32)).float().sum()


def plain(model: Casting, x_BI: Tensor) -> Tensor:
    """The same in float64; the constant keeps the float32 that it was made in."""
    h_BI = torch.softmax(model.linear(x_BI), -1) * model.third.double() + 0.3
    h_BI = F.layer_norm(F.gelu(h_BI), (8,))
    return (2 * h_BI * torch.arange(8)).sum()


def test_casts_make_no_difference_to_a_truth() -> None:
    model = Casting()
    parameters = list(model.parameters())
    with promoting(True) as promotion:
        total = model(X_BI)
        grads = torch.autograd.grad(total, parameters)
    expected = plain(model, X_BI)
    assert total.dtype == torch.float64
    assert total.item() == pytest.approx(expected.item(), rel=1e-15)
    for grad, truth in zip(grads, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(grad, truth, rtol=1e-13, atol=1e-15)
    assert abs(model(X_BI).item() - expected.item()) > 1e-3, "with its casts it is another number"
    assert promotion is not None
    noted = promotion.record()
    assert not noted["left"]
    assert noted["narrowest"] == "bfloat16"
    lines = {key.partition(" ")[0] for key in noted["promoted"]}
    assert all(line.startswith(f"{Path(__file__).name}:") for line in lines), lines
    assert len(lines) >= 4


def test_what_stays_narrow_is_named() -> None:
    with promoting(True) as promotion:
        torch.view_as_real(torch.ones(2, dtype=torch.complex64))
    assert promotion is not None
    left = promotion.record()["left"]
    assert any("view_as_real" in key and key.endswith("float32") for key in left), left


def test_nothing_is_promoted_where_it_is_not_wanted() -> None:
    with promoting(False) as promotion:
        assert promotion is None
        assert torch.ones(1).dtype == torch.float32
    with promoting(True):
        assert torch.ones(1).dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32
    assert math.isclose(float(torch.tensor(0.1)), 0.1, rel_tol=1e-7)
