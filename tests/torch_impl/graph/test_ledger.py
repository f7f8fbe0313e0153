"""A pointer that moved is named."""

import pytest
import torch
from torch import nn

from spec.errors import RuleError
from torch_impl.graph.ledger import Ledger


def ledger_of(module: nn.Module) -> Ledger:
    return Ledger(lambda: {**dict(module.named_parameters()), **dict(module.named_buffers())})


def test_writing_in_place_moves_nothing() -> None:
    module = nn.Linear(3, 3)
    ledger = ledger_of(module)
    with torch.no_grad():
        module.weight.mul_(2)
    module.load_state_dict(nn.Linear(3, 3).state_dict())
    ledger.check()


@pytest.mark.parametrize("how", ["parameter", "data", "assign"])
def test_a_replaced_parameter_is_named(how: str) -> None:
    module = nn.Linear(3, 3)
    ledger = ledger_of(module)
    if how == "parameter":
        module.weight = nn.Parameter(torch.zeros(3, 3))
    elif how == "data":
        module.weight.data = torch.zeros(3, 3)
    else:
        module.load_state_dict(nn.Linear(3, 3).state_dict(), assign=True)
    with pytest.raises(RuleError, match="weight was float32"):
        ledger.check()


def test_what_came_and_what_went_is_named() -> None:
    module = nn.BatchNorm1d(3)
    ledger = ledger_of(module)
    del module.running_mean
    module.register_buffer("extra", torch.zeros(1))
    assert ledger.moved() == ["extra is new", "running_mean is gone"]


def test_views_of_one_buffer_count_once() -> None:
    flat = torch.zeros(100)
    ledger = Ledger(lambda: {"flat": flat, "part": flat[10:20], "other": flat[90:]})
    assert ledger.num_bytes() == 400
