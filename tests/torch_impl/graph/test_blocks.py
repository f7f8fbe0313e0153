"""A loss cut at the model's blocks: the same numbers, the model itself again between calls."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torch_impl.graph.blocks import by_blocks, find_blocks

# Dynamo looks at the `.grad` of a block's input.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Module()
        self.inside.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor, *, scale: float) -> Tensor:
        for layer in self.inside.layers:
            x = layer(x)
        return self.head(x) * scale


def loss_of(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    out = model(batch["x"] + 1, scale=2.0)
    return (out - batch["y"]).square().sum(), (batch["y"] == batch["y"]).sum()


def recording(programs: list[str]) -> dict[str, Any]:
    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        programs.append(" ".join(str(node.target) for node in module.graph.nodes if node.op[:4] == "call"))
        return module.forward

    return {"backend": backend, "fullgraph": True, "dynamic": False}


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_numbers_are_those_of_the_loss_and_blocks_and_tail_are_programs() -> None:
    torch.manual_seed(0)
    model, programs = Stack(), list[str]()
    batch = {"x": torch.randn(5, 4), "y": torch.randn(5, 2)}
    expected, count = loss_of(model, batch)
    in_parts = by_blocks(loss_of, model, recording(programs))
    for _ in range(2):
        got, got_count = in_parts(model, batch)
        assert got.item() == expected.item() and got_count.item() == count.item() == 10
    grads = torch.autograd.grad(in_parts(model, batch)[0], list(model.parameters()))
    for grad, other in zip(grads, torch.autograd.grad(expected, list(model.parameters())), strict=True):
        torch.testing.assert_close(grad, other, rtol=1e-6, atol=1e-7)
    assert sum("tanh" in program for program in programs) >= 1
    assert [program for program in programs if "tanh" not in program] != []
    assert not any("tanh" in program and "sum" in program for program in programs)


def test_the_model_is_itself_between_calls() -> None:
    model = Stack()
    batch = {"x": torch.randn(5, 4), "y": torch.randn(5, 2)}
    by_blocks(loss_of, model, recording([]))(model, batch)
    assert all(layer._compiled_call_impl is None for layer in model.inside.layers)
    assert "compiled" not in " ".join(model.state_dict())


def test_blocks_are_the_outermost_lists() -> None:
    model = Stack()
    assert find_blocks(model) == list(model.inside.layers)
    assert find_blocks(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))) == []
