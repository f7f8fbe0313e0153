"""Which calls work between positions, and over how many, is seen in users' own modules."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from torch_impl.over_one import OverOne

B, C = 2, 8
Model = Callable[[Tensor], object]


def cells(x: Tensor) -> Tensor:
    cell, state = nn.GRUCell(C, C), None
    for row in x.unbind(1):
        state = cell(row, state)
    assert state is not None
    return state


def decoded(x: Tensor) -> Tensor:
    """Attention over all that was read before, one position a call."""
    seen = [x[:, : t + 1] for t in range(x.shape[1])]
    return torch.cat([F.scaled_dot_product_attention(past[:, -1:], past, past) for past in seen], 1)


def step_by_step(x: Tensor) -> Tensor:
    layer, state = nn.LSTM(C, C, batch_first=True), None
    for row in x.split(1, 1):
        out, state = layer(row, state)
    return out


BETWEEN: dict[str, tuple[str, Model]] = {
    "sdpa": ("scaled_dot_product_attention", lambda x: F.scaled_dot_product_attention(x, x, x)),
    "decoded": ("scaled_dot_product_attention", decoded),
    "module": (
        "multi_head_attention_forward",
        lambda x: nn.MultiheadAttention(C, 2, batch_first=True)(x, x, x),
    ),
    "lstm": ("lstm", lambda x: nn.LSTM(C, C, batch_first=True)(x)),
    "lstm, step by step": ("lstm", step_by_step),
    "gru": ("gru", lambda x: nn.GRU(C, C)(x.transpose(0, 1))),
    "rnn": ("rnn_tanh", lambda x: nn.RNN(C, C, batch_first=True)(x)),
    "packed": (
        "gru",
        lambda x: nn.GRU(C, C)(pack_padded_sequence(x, torch.tensor([x.shape[1], 1]), batch_first=True)),
    ),
    "cells": ("gru_cell", cells),
    "conv": ("conv1d", lambda x: nn.Conv1d(C, C, 3, padding=1)(x.mT)),
    "causal conv": ("conv1d", lambda x: nn.Conv1d(C, C, 3)(F.pad(x.mT, (2, 0)))),
}
SOFTMAX: dict[str, tuple[str, Model]] = {
    "functional": ("softmax", lambda x: F.softmax(x @ x.mT, dim=-1) @ x),
    "method": ("softmax", lambda x: (x @ x.mT).softmax(-1) @ x),
    "special": ("softmax", lambda x: torch.special.softmax(x @ x.mT, -1) @ x),
    "log": ("log_softmax", lambda x: F.log_softmax(x @ x.mT, -1).exp() @ x),
    "log method": ("log_softmax", lambda x: (x @ x.mT).log_softmax(-1).exp() @ x),
    "module": ("softmax", lambda x: nn.Softmax(-1)(x @ x.mT) @ x),
}


def found(model: Model, length: int, *others: tuple[int, ...]) -> tuple[str, ...]:
    """Of a model that is given so many positions, and other arrays of these shapes."""
    torch.manual_seed(0)
    with OverOne() as seen:
        model(torch.randn(B, length, C))
    return seen.found([(B, length, C), *others])


@pytest.mark.parametrize("name", BETWEEN)
def test_a_function_between_positions_counts_where_it_had_one(name: str) -> None:
    function, model = BETWEEN[name]
    assert found(model, 1) == (function,)
    assert found(model, 1, (B, 3), (B,)) == (function,), "whatever else is in the batch"
    assert found(model, 2) == ()


@pytest.mark.parametrize("name", SOFTMAX)
def test_a_softmax_over_one_counts_where_the_batch_has_no_second_position(name: str) -> None:
    function, model = SOFTMAX[name]
    assert found(model, 1, (B,), (B, 1)) == (function,)
    assert found(model, 1, (B, 3)) == ()
    assert found(model, 2) == ()


def router(x: Tensor) -> Tensor:
    return x * F.softmax(x.sum(-1, keepdim=True), -1)


@pytest.mark.parametrize(
    "attention",
    [
        lambda x: F.scaled_dot_product_attention(x, x, x),
        lambda x: nn.GRU(C, C, batch_first=True)(x)[0],
        lambda x: F.softmax(x @ x.mT, -1) @ x,
    ],
)
def test_a_gate_over_one_expert_beside_what_had_several_positions_is_none(attention: Model) -> None:
    def model(image: Tensor) -> Tensor:
        """Of an image of one channel, whose second axis tells of no positions."""
        return router(attention(image.reshape(B, -1, C)))  # type: ignore[arg-type]

    torch.manual_seed(0)
    with OverOne() as seen:
        model(torch.randn(B, 1, 4, C))
    assert seen.found([(B, 1, 4, C), (B, 1)]) == ()


def test_a_gate_over_one_expert_of_single_tokens_looks_as_attention_does() -> None:
    assert found(router, 1, (B, 1)) == ("softmax",)


def test_a_state_that_is_learned_shows_over_one_position() -> None:
    assert found(lambda x: nn.GRU(C, C, batch_first=True)(x, torch.ones(1, B, C)), 1) == ()


def test_a_kernel_of_one_and_a_model_without_positions_make_no_such_call() -> None:
    mlp = nn.Sequential(nn.Linear(C, C), nn.GELU(), nn.LayerNorm(C), nn.Softmax(dim=-1))
    assert found(mlp, 1) == ()
    assert found(lambda x: nn.Conv1d(C, C, 1)(x.mT), 1) == ()


@pytest.mark.parametrize("length", [1, 3])
def test_a_compiled_model_is_called_as_one_graph(length: int) -> None:
    causal, cell = nn.Conv1d(C, C, 3), nn.GRUCell(C, C)

    def model(x: Tensor) -> Tensor:
        for _ in range(2):
            x = causal(F.pad(x.mT, (2, 0))).mT
        state = cell(cell(x[:, 0]), x[:, -1])
        return F.scaled_dot_product_attention(x, x, x) + state[:, None]

    seen = found(torch.compile(model, fullgraph=True, backend="eager"), length)
    assert seen == (("scaled_dot_product_attention",) if length == 1 else ())


def test_a_transformed_function_is_called_as_it_is() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.vmap(lambda row: F.conv1d(F.pad(row[None].mT, (1, 0)), torch.ones(1, C, 2)))(x)

    assert found(model, 1) == ()
