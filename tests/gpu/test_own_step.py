"""A user's torch optimizer captured; averages, rates, checkpointing, and weights written between launches."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.gpu.steps import (
    ConvNet,
    alone,
    capture,
    conv_rows,
    conv_setup,
    differences,
    run_captured,
    run_eagerly,
)
from torch_impl.graph.ema import Ema
from torch_impl.graph.own_step import OwnStep
from torch_impl.graph.random import Dropout, advance
from torch_impl.graph.updates import Sgd, make_update, rates_by_name
from torch_impl.graph.whole_step import WholeStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match"),
]
DEVICE = torch.device("cuda", 0)
STEPS = range(1, 30)

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "fused_adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-3),
}


def loss_of(module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    logits, labels = module(batch["images"]), batch["labels"]
    total = nn.functional.cross_entropy(logits, labels, reduction="sum")
    return total, torch.full((), labels.numel(), device=labels.device)


def own_of(name: str) -> tuple[OwnStep, torch.optim.Optimizer]:
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(2)
    module = ConvNet(0.0).to(DEVICE)
    optimizer = OPTIMIZERS[name](module.parameters())
    return OwnStep(module, loss_of, optimizer, max_norm=1.0), optimizer


def on_device(number: int) -> dict[str, Tensor]:
    return {name: torch.from_numpy(values).to(DEVICE) for name, values in conv_rows(number).items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_torch_optimizer_captured_equals_itself_eager_under_a_schedule(name: str) -> None:
    seen: list[Any] = []
    for captured in (False, True):
        own, optimizer = own_of(name)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
        own(on_device(0))
        whole = None
        if captured:
            whole = WholeStep(own.forms(), own, DEVICE)
            whole.capture(conv_rows(1))
        losses = []
        for number in STEPS:
            schedule.step()
            own.audit()
            if whole is None:
                own(on_device(number))
                losses.append(own.metrics.tolist())
            else:
                losses.append(whole.metrics(whole(conv_rows(number))))
        state = {str(i): tensor.clone() for i, tensor in enumerate(own.lasting())}
        if whole is not None:
            whole.ledger.check()
            whole.close()
        seen.append((losses, state))
    assert seen[0][0] == seen[1][0]
    assert not differences(seen[0][1], seen[1][1])


def test_sgd_rates_and_an_average_on_flat_buffers_are_captured_too() -> None:
    def make() -> tuple[Any, Ema]:
        setup = conv_setup(0.0, alone())
        arena = setup.arena
        table = torch.full((100, 1), 0.05, device=DEVICE)
        rates = rates_by_name(arena, {"head.*": 0.1})
        update = make_update(table, Sgd(), 1.0, rates)
        object.__setattr__(setup.step, "update", update)
        ema = Ema(arena, 0.9)
        setup.step = ema.following(setup.step)
        return setup, ema

    eager, ema = make()
    expected = run_eagerly(eager, eager.step, STEPS)
    graph, other = make()
    captured = capture(graph, extra=other.lasting)
    assert torch.equal(other.flat, graph.arena.master), "capture moved the average"
    assert run_captured(graph, captured, STEPS) == expected
    assert not differences(eager.state(), graph.state())
    assert torch.equal(ema.flat, other.flat) and not torch.equal(ema.flat, eager.arena.master)
    captured.step.close()


class Checkpointed(nn.Module):
    """Two blocks with dropout, each computed again in backward."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.again = again
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(768, 768), nn.Tanh(), Dropout(0.1, 7, site)) for site in range(2)
        )
        self.head = nn.Linear(768, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = images.flatten(1)
        for block in self.blocks:
            if self.again:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x)
        return self.head(x)


def test_activation_checkpointing_gives_the_gradients_of_plain_backward() -> None:
    def make(again: bool) -> Any:
        from tests.gpu.steps import of_side
        from torch_impl.models import Side

        def loss(module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            advance(module)
            return loss_of(module, batch)

        def build() -> nn.Module:
            torch.manual_seed(1)
            return Checkpointed(again)

        return of_side(Side(build, loss), conv_setup(0.0, alone()).problem, alone(), conv_rows)

    plain, again = make(False), make(True)
    expected = run_eagerly(plain, plain.step, STEPS)
    captured = capture(again)
    assert run_captured(again, captured, STEPS) == expected
    assert not differences(plain.state(), again.state())
    captured.step.close()


def test_weights_are_read_and_written_in_place_between_launches() -> None:
    reference, setup = conv_setup(0.0, alone()), conv_setup(0.0, alone())
    expected = run_eagerly(reference, reference.step, range(3))
    reference.arena.master.mul_(0.5)
    reference.arena.refresh()
    expected += run_eagerly(reference, reference.step, range(3, 6))
    captured = capture(setup)
    got = run_captured(setup, captured, range(3))
    rollout = setup.arena.module.eval()(setup.device_batch(0)["images"])
    setup.arena.module.train()
    assert rollout.isfinite().all()
    for tensor in setup.arena.tensors("param").values():
        tensor.mul_(0.5)
    setup.arena.refresh()
    got += run_captured(setup, captured, range(3, 6))
    assert got == expected
    captured.step.close()
