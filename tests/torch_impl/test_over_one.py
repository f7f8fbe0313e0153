"""Which calls work between positions, and over how many, is seen in users' own modules."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_impl.over_one import OverOne

B, C = 2, 8
MODELS = {
    "softmax": lambda x: F.softmax(x @ x.mT, dim=-1) @ x,
    "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "multi_head_attention_forward": lambda x: nn.MultiheadAttention(C, 2, batch_first=True)(x, x, x)[0],
    "lstm": lambda x: nn.LSTM(C, C, batch_first=True)(x)[0],
    "gru": lambda x: nn.GRU(C, C)(x.mT.reshape(x.shape[1], B, C))[0],
}


def found(model: object, length: int) -> list[str]:
    torch.manual_seed(0)
    with OverOne() as seen:
        model(torch.randn(B, length, C))  # type: ignore[operator]
    return seen.found


@pytest.mark.parametrize("name", MODELS)
def test_a_call_over_one_position_is_seen_and_one_over_two_is_not(name: str) -> None:
    assert found(MODELS[name], 1) == [name]
    assert found(MODELS[name], 2) == []


def test_a_model_without_positions_makes_no_such_call() -> None:
    mlp = nn.Sequential(nn.Linear(C, C), nn.GELU(), nn.LayerNorm(C), nn.Softmax(dim=-1))
    assert found(mlp, 1) == []
