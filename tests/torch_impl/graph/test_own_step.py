"""A user's optimizer through the general path, on a CPU: the same numbers as the loop everybody writes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spec.errors import RuleError
from torch_impl.graph.own_step import OwnStep
from torch_impl.graph.settings import Settings

Batch = dict[str, Tensor]


def module_of() -> nn.Module:
    torch.manual_seed(0)
    # No bias before the norm: its gradient is zero, and Adam would blow its rounding up to whole steps.
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))


def loss_of(module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    error = module(batch["x"]) - batch["y"]
    return error.square().sum(), torch.tensor(error.numel())


def batch_of(number: int) -> Batch:
    generator = torch.Generator().manual_seed(number)
    return {"x": torch.randn(6, 4, generator=generator), "y": torch.randn(6, 2, generator=generator)}


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.1),
    "plain_sgd": lambda p: torch.optim.SGD(p, lr=1e-2),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-2),
}


def by_hand(make: Callable[[Any], torch.optim.Optimizer], steps: int, max_norm: float) -> nn.Module:
    module = module_of()
    optimizer = make(module.parameters())
    for number in range(steps):
        optimizer.zero_grad()
        loss_sum, count = loss_of(module, batch_of(number))
        (loss_sum / count).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), max_norm)
        optimizer.step()
    return module


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_trains_as_the_loop_that_users_write(name: str) -> None:
    expected = by_hand(OPTIMIZERS[name], 20, 0.5)
    module = module_of()
    own = OwnStep(module, loss_of, OPTIMIZERS[name](module.parameters()), max_norm=0.5)
    for number in range(20):
        own(batch_of(number))
    # Another order of the division, and learning rates in float32: a few roundings, amplified over 20 steps.
    for (key, value), other in zip(module.state_dict().items(), expected.state_dict().values(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-5, atol=1e-6, msg=lambda text, key=key: key + text)


@pytest.mark.parametrize("when", [0, 3])
@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_step_that_is_not_finite_is_as_if_it_had_not_been(name: str, when: int) -> None:
    states = []
    for bad in (False, True):
        module = module_of()
        own = OwnStep(module, loss_of, OPTIMIZERS[name](module.parameters()), max_norm=0.5)
        for number in range(6):
            if bad and number == when:
                batch = batch_of(99)
                batch["x"][0, 0] = float("nan")
                own(batch)
                assert own.metrics[0].isnan()
            own(batch_of(number))
        states.append([tensor.clone() for tensor in own.lasting()])
        assert int(own.skipped) == int(bad)
    assert all(torch.equal(a, b) for a, b in zip(states[0][:-1], states[1][:-1], strict=True))


def test_a_learning_rate_that_is_set_is_taken_over_and_a_schedule_fills_it() -> None:
    module = module_of()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    own = OwnStep(module, loss_of, optimizer)
    held = optimizer.param_groups[0]["lr"]
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    own(batch_of(0))
    schedule.step()
    own.audit()
    assert optimizer.param_groups[0]["lr"] is held and held.item() == 0.25
    optimizer.param_groups[0]["lr"] = 1e-3
    own.audit()
    assert optimizer.param_groups[0]["lr"] is held and held.item() == pytest.approx(1e-3)


@pytest.mark.parametrize(("setting", "value"), [("weight_decay", 0.2), ("betas", (0.5, 0.9)), ("eps", 1e-3)])
def test_another_setting_that_changed_is_named(setting: str, value: Any) -> None:
    module = module_of()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    own = OwnStep(module, loss_of, optimizer)
    own.audit()
    optimizer.param_groups[0][setting] = value
    with pytest.raises(RuleError, match=f"group 0 {setting}"):
        own.audit()


def test_what_no_gradient_reaches_is_named_before_capture() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    module = Partly()
    own = OwnStep(module, loss_of, torch.optim.AdamW(module.parameters()))
    own(batch_of(0))
    with pytest.raises(RuleError, match=r"idle\.weight"):
        own.forms()


def test_groups_keep_their_own_rates() -> None:
    module = module_of()
    groups = [{"params": module[0].parameters()}, {"params": module[3].parameters(), "lr": 0.0}]
    before = module[3].weight.detach().clone()
    own = OwnStep(module, loss_of, torch.optim.SGD(groups, lr=0.1))
    own(batch_of(0))
    assert torch.equal(module[3].weight, before) and own.metrics[1] > 0


def test_float16_is_refused_with_the_mend() -> None:
    module = module_of().half()
    with pytest.raises(RuleError, match="loss scaling") as refused:
        OwnStep(module, loss_of, torch.optim.AdamW(module.parameters()))
    assert "bfloat16" in refused.value.mend


def test_an_optimizer_of_the_hosts_is_refused_on_a_gpu() -> None:
    optimizer = torch.optim.Adafactor(nn.Linear(2, 2).parameters())
    with pytest.raises(RuleError, match="Adafactor"):
        Settings(optimizer, torch.device("cuda")).make_capturable(every=True)
