"""SGD and rates by name on flat buffers against torch's optimizer; the average against its formula."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spec.errors import RuleError
from spec.precision import find_profile
from torch_impl.graph.ema import Ema
from torch_impl.graph.updates import Sgd, make_update, rates_by_name
from torch_impl.memory import Arena
from torch_impl.step import Step

CPU = torch.device("cpu")
LR = [0.1, 0.05, 0.02, 0.01]


def module_of() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).double()


def loss_of(module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    out = module(batch["x"])
    return (out * out * batch["scale"]).sum(), torch.tensor(out.numel())


def batch_of(number: int, scale: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(8, 3, dtype=torch.float64, generator=generator)
    return {"x": x, "scale": torch.full((8, 1), scale, dtype=torch.float64)}


def arena_of() -> Arena:
    return Arena(module_of(), (), find_profile("f64"), CPU)


def step_of(arena: Arena, rule: Sgd, **options: Any) -> Step:
    table = torch.tensor([[lr] for lr in LR], dtype=torch.float64)
    return Step(loss_of, lambda flat: None, make_update(table, rule, **options), micro_batches=2)


def by_torch(factors: dict[str, float], rule: Sgd, max_norm: float | None) -> nn.Module:
    module = module_of()
    groups = [
        {
            "params": [p],
            "factor": factors.get(name, 1.0),
            "weight_decay": rule.weight_decay if p.ndim > 1 else 0.0,
        }
        for name, p in module.named_parameters()
    ]
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=rule.momentum)
    for number, lr in enumerate(LR):
        optimizer.zero_grad()
        batch = batch_of(number)
        for part in (slice(0, 4), slice(4, 8)):
            loss_sum, _ = loss_of(module, {name: values[part] for name, values in batch.items()})
            (loss_sum / 16).backward()
        if max_norm is not None:
            norm = torch.nn.utils.get_total_norm([p.grad for p in module.parameters() if p.grad is not None])
            for p in module.parameters():
                p.grad.mul_(min(1.0, max_norm / norm.item()))  # type: ignore[union-attr]
        for group in optimizer.param_groups:
            group["lr"] = lr * group["factor"]
        optimizer.step()
    return module


@pytest.mark.parametrize("max_norm", [None, 0.05])
@pytest.mark.parametrize("factors", [{}, {"0.weight": 0.1, "2.bias": 0.0}])
def test_sgd_with_momentum_decay_clip_and_rates_is_torchs(
    max_norm: float | None, factors: dict[str, float]
) -> None:
    rule, arena = Sgd(momentum=0.9, weight_decay=0.01), arena_of()
    rates = rates_by_name(arena, factors) if factors else None
    step = step_of(arena, rule, max_norm=max_norm, rates=rates)
    for number in range(len(LR)):
        step(arena, batch_of(number))
    expected = by_torch(factors, rule, max_norm)
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(arena.tensors("param")[name], parameter.data, rtol=1e-12, atol=1e-14)
    assert int(arena.applied) == len(LR)


def test_patterns_are_shell_patterns_and_one_that_fits_nothing_is_refused() -> None:
    arena = arena_of()
    rates = rates_by_name(arena, {"*.bias": 0.5, "0.*": 0.25})
    values = {slot.row.name: slot.view(rates).unique().tolist() for slot in arena.slots}
    assert values["0.bias"] == [0.5] and values["0.weight"] == [0.25] and values["2.weight"] == [1.0]
    with pytest.raises(RuleError, match="nothing"):
        rates_by_name(arena, {"nothing.*": 2.0})


def test_the_average_follows_and_a_refused_update_leaves_it() -> None:
    arena = arena_of()
    ema = Ema(arena, 0.75)
    step = ema.following(step_of(arena, Sgd(), max_norm=None))
    expected = arena.master.clone()
    for number in range(3):
        step(arena, batch_of(number))
        expected += 0.25 * (arena.master - expected)
        torch.testing.assert_close(ema.flat, expected, rtol=1e-15, atol=0)
    step(arena, batch_of(3, scale=float("nan")))
    assert torch.equal(ema.flat, expected) and int(arena.skipped) == 1
    assert ema.tensors()["0.weight"].shape == (5, 3)
    with pytest.raises(RuleError):
        Ema(arena, 1.0)


def test_a_module_in_float16_is_refused_with_the_mend() -> None:
    with pytest.raises(RuleError, match=r"0\.weight is float16") as refused:
        Arena(module_of().half(), (), find_profile("strict"), CPU)
    assert "bf16" in refused.value.mend
