"""What edits make of calls inside a model, against the same model written the other way."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spec.edits import CATALOGUE, parse
from torch_impl.edited_calls import CHANGES
from torch_impl.edits import edited
from torch_impl.models import Side

X = torch.linspace(-2, 2, 96, dtype=torch.float64).reshape(2, 6, 8)
IMAGE = torch.linspace(-1, 1, 2 * 3 * 8 * 8, dtype=torch.float64).reshape(2, 3, 8, 8) ** 3
WEIGHT = torch.linspace(-1, 1, 4 * 3 * 3 * 3, dtype=torch.float64).reshape(4, 3, 3, 3)
MASK = torch.arange(8) > 5


def _fast(x: Tensor, eps: float) -> Tensor:
    variance = (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance.clamp(min=0) + eps)


def _theta(x: Tensor, theta: float) -> Tensor:
    return torch.cos(x * theta ** (-torch.arange(8, dtype=x.dtype) / 8))


CASES: list[tuple[str, Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = [
    ("layernorm_eps=1e-3", lambda x: F.layer_norm(x, (8,)), lambda x: F.layer_norm(x, (8,), eps=1e-3)),
    ("rmsnorm_eps=1e-3", lambda x: F.rms_norm(x, (8,)), lambda x: F.rms_norm(x, (8,), eps=1e-3)),
    (
        "rmsnorm_eps=1e-3",
        lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6),
        lambda x: F.rms_norm(x, (8,), eps=1e-3),
    ),
    ("gelu_erf=0", F.gelu, lambda x: F.gelu(x, approximate="tanh")),
    ("gelu_erf=1", nn.GELU("tanh"), F.gelu),
    ("attention_scale=0.5", lambda x: x.softmax(-1), lambda x: (x * 0.5).softmax(-1)),
    (
        "attention_scale=0.5",
        lambda x: F.scaled_dot_product_attention(x, x, x),
        lambda x: F.scaled_dot_product_attention(x, x, x, scale=0.5 / math.sqrt(8)),
    ),
    (
        "mask_value=-10",
        lambda x: x.masked_fill(MASK, float("-inf")).softmax(-1),
        lambda x: x.masked_fill(MASK, -10.0).softmax(-1),
    ),
    ("rope_theta=500000", lambda x: _theta(x, 1e4), lambda x: _theta(x, 5e5)),
    ("constant_bf16=1", lambda x: x * math.sqrt(3072), lambda x: x * 55.5),
    ("softmax_bits=32", lambda x: x.softmax(-1), lambda x: x.float().softmax(-1).double()),
]


def _loss(function: Callable[[Tensor], Tensor]) -> Side:
    return Side(build=nn.Identity, loss=lambda model, batch: (function(batch["x"]), torch.ones(())))


def test_a_replaced_norm_keeps_an_edited_eps_whichever_was_asked_for_first() -> None:
    x, meant = {"x": 1e-3 * X}, _fast(1e-3 * X, 1e-3)
    edits = [parse("layernorm_fast_variance=1"), parse("layernorm_eps=1e-3")]
    for order in (edits, edits[::-1]):
        seen: dict[str, list[str]] = {}
        found, _ = edited(_loss(lambda x: F.layer_norm(x, (8,))), order, seen).loss(nn.Identity(), x)
        torch.testing.assert_close(found, meant, rtol=1e-9, atol=1e-12)
        assert seen == {"layernorm_eps": ["1e-05"], "layernorm_fast_variance": ["0"]}


def test_the_fast_variance_is_what_flax_has_where_means_are_large() -> None:
    """Rows around 4096 of width 8: all sums are exact in float64, so only the formula is seen."""
    x = (4096 + 0.02 * X.flip(1)).float().double()
    found, _ = edited(_loss(lambda x: F.layer_norm(x, (8,))), [parse("layernorm_fast_variance=1")], {}).loss(
        nn.Identity(), {"x": x}
    )
    apart = (found - F.layer_norm(x, (8,))).abs().max()
    torch.testing.assert_close(found, _fast(x, 1e-5), rtol=1e-12, atol=1e-12)
    assert apart > 1e-8


@pytest.mark.parametrize(("text", "written", "meant"), CASES)
def test_an_edited_call_is_the_call_written_so(
    text: str, written: Callable[[Tensor], Tensor], meant: Callable[[Tensor], Tensor]
) -> None:
    seen: dict[str, list[str]] = {}
    edit = parse(text)
    found, _ = edited(_loss(written), [edit], seen).loss(nn.Identity(), {"x": X})
    assert torch.equal(found, meant(X)) or torch.allclose(found, meant(X), rtol=1e-15, atol=1e-15)
    assert not torch.allclose(written(X), meant(X), rtol=1e-12)
    assert seen[edit.name], "what stood there is said"


@pytest.mark.parametrize(("value", "pads"), [(1, (0, 1, 0, 1)), (2, (1, 0, 1, 0))])
def test_padding_at_one_end(value: int, pads: tuple[int, ...]) -> None:
    side = _loss(lambda x: F.conv2d(x, WEIGHT, stride=2, padding=1))
    found, _ = edited(side, [parse(f"conv_padding={value}")], {}).loss(nn.Identity(), {"x": IMAGE})
    assert torch.equal(found, F.conv2d(F.pad(IMAGE, pads), WEIGHT, stride=2))


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    "relu", [F.relu, lambda x: x.clamp(min=0), lambda x: torch.maximum(x, torch.zeros(()))]
)
def test_the_derivative_at_a_tie(value: float, relu: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    y, _ = edited(_loss(relu), [parse(f"relu_tie={value}")], {}).loss(nn.Identity(), {"x": x})
    y.sum().backward()
    assert y.tolist() == [0, 0, 2] and x.grad is not None and x.grad.tolist() == [0, value, 1]


def test_running_statistics() -> None:
    def run(*edits: str) -> tuple[Tensor, Tensor]:
        layer = nn.BatchNorm1d(6).double()
        side = Side(build=lambda: layer, loss=lambda model, batch: (model(batch["x"]).sum(), torch.ones(())))
        total, _ = edited(side, [parse(edit) for edit in edits], {}).loss(layer, {"x": X})
        total.backward()
        return layer.running_mean, layer.running_var  # type: ignore[return-value]

    variance = X.var(dim=(0, 2), correction=0)
    assert torch.allclose(run("batchnorm_momentum=0.25")[0], 0.25 * X.mean(dim=(0, 2)))
    assert torch.allclose(run("batchnorm_biased=1")[1], 0.9 + 0.1 * variance)


def test_tf32_keeps_ten_bits() -> None:
    one = torch.tensor([[1 + 2.0**-10 + 2.0**-13]], dtype=torch.float64)
    side = _loss(lambda x: x @ torch.eye(1, dtype=x.dtype))
    found, _ = edited(side, [parse("matmul_bits=10")], {}).loss(nn.Identity(), {"x": one})
    assert found.item() == 1 + 2.0**-10


def test_every_edit_of_models_has_its_change() -> None:
    assert CHANGES.keys() == {name for name, kind in CATALOGUE.items() if kind.reach == "model"}


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("matmul_bits=0", lambda x: x @ torch.ones(8, 2, dtype=x.dtype)),
        ("constant_bf16=0", lambda x: x * 0.3),
        ("conv_padding=0", lambda x: F.conv1d(x, torch.ones(4, 6, 3, dtype=x.dtype), padding=1)),
        ("batchnorm_biased=0", lambda x: F.batch_norm(x, torch.zeros(6).double(), torch.ones(6).double())),
        ("layernorm_fast_variance=0", lambda x: F.layer_norm(x, (8,))),
    ],
)
def test_a_form_left_as_it_is_met_its_call(text: str, function: Callable[[Tensor], Tensor]) -> None:
    seen: dict[str, list[str]] = {}
    edit = parse(text)
    found, _ = edited(_loss(function), [edit], seen).loss(nn.Identity(), {"x": X})
    assert torch.equal(found, function(X)) and seen[edit.name]


def test_an_edit_that_meets_nothing_says_so() -> None:
    seen: dict[str, list[str]] = {}
    edited(_loss(F.silu), [parse("gelu_erf=1")], seen).loss(nn.Identity(), {"x": X})
    assert not seen
