"""A user's torch optimizer, whatever it keeps and wherever, trains in a step as in a plain loop."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import torch_impl
from tests.torch_impl.own_optimizers import Named, trainer_of

Make = Callable[[Named], torch.optim.Optimizer]


class Kept(torch.optim.Optimizer):
    """Momentum, kept as a subclass likes."""

    def __init__(self, named: Named) -> None:
        super().__init__(named, {"lr": 1e-2})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Twice the momentum's way."""
        for number, p in enumerate(self.param_groups[0]["params"]):
            p.sub_(self.moved(number, p), alpha=1e-2)

    def moved(self, number: int, p: nn.Parameter) -> Tensor:
        raise NotImplementedError


class InATuple(Kept):
    def moved(self, number: int, p: nn.Parameter) -> Tensor:
        state = self.state[p]
        state["mv"] = (0.9 * state["mv"][0] + p.grad, p.grad.clone()) if state else (p.grad.clone(), p.grad)
        return state["mv"][0]


class InANewDictionary(Kept):
    def moved(self, number: int, p: nn.Parameter) -> Tensor:
        m = 0.9 * self.state[p]["m"] + p.grad if self.state[p] else p.grad.clone()
        self.state[p] = {"m": m}
        return m


class InAList(Kept):
    def __init__(self, named: Named) -> None:
        super().__init__(named)
        self.kept: list[Tensor] = []

    def moved(self, number: int, p: nn.Parameter) -> Tensor:
        if number == len(self.kept):
            self.kept.append(torch.zeros_like(p))
        self.kept[number].mul_(0.9).add_(p.grad)
        return self.kept[number]


class BehindASlowOne(Kept):
    """Pulls towards weights that it copied in its first step."""

    def moved(self, number: int, p: nn.Parameter) -> Tensor:
        slow = self.state[p].setdefault("slow", p.detach().clone())
        return p.grad + 0.1 * (p - slow)


class Shifted(Kept):
    """The gradient before the last is what was the last one's."""

    def moved(self, number: int, p: nn.Parameter) -> Tensor:
        state = self.state[p]
        before = state.get("prev", torch.zeros_like(p))
        state["prev"] = state.get("g", torch.zeros_like(p))
        state["g"] = p.grad.clone()
        return p.grad + 0.5 * before


class OnTheHost(Kept):
    """A counter in Python, and a rate that a scheduler of its own sets."""

    def __init__(self, named: Named) -> None:
        super().__init__(named)
        self.calls, self.scheduler = 0, LambdaLR(self, lambda step: 1 / (step + 1))

    def moved(self, number: int, p: nn.Parameter) -> Tensor:
        if number == 0:
            self.calls += 1
            self.scheduler.step()
        return p.grad * (self.calls * self.param_groups[0]["lr"])


def dampened(named: Named) -> torch.optim.Optimizer:
    return torch.optim.SGD(named, lr=0.1, momentum=0.9, dampening=0.5)


MAKERS: tuple[Make, ...] = (
    InATuple,
    InANewDictionary,
    InAList,
    BehindASlowOne,
    Shifted,
    OnTheHost,
    dampened,
    torch.optim.Rprop,
    torch.optim.NAdam,
)


@pytest.mark.parametrize("refused_at", [0, 2])
@pytest.mark.parametrize("make", MAKERS)
def test_an_update_that_is_refused_was_not_asked_of_the_optimizer(make: Make, refused_at: int) -> None:
    disturbed, clean = trainer_of(make), trainer_of(make)
    for step in range(5):
        rows = clean.feed.rows(step)
        if step == refused_at:
            disturbed.step({key: np.full_like(array, np.inf) for key, array in rows.items()})
        disturbed.step(rows)
        clean.step(rows)
    assert (disturbed.metrics().skipped, disturbed.applied) == (1, 5)
    assert _bits(disturbed) == _bits(clean)


@pytest.mark.parametrize("make", [Shifted, InANewDictionary, dampened])
def test_state_that_stays_in_place_trains_alike(make: Make) -> None:
    """As a graph needs it, here without one: what is replaced is copied, after all of it was read."""
    staying, plain = trainer_of(make), trainer_of(make)
    for step in range(5):
        rows = plain.feed.rows(step)
        plain.step(rows)
        staying.step(rows)
        assert staying._own is not None and staying._own.has_state
        staying._own._is_captured = True
        if step == 2:
            staying.step({key: np.full_like(array, np.inf) for key, array in rows.items()})
    assert staying.metrics().skipped == 1
    assert _bits(staying) == _bits(plain)


def _bits(trainer: torch_impl.Trainer) -> dict[str, bytes]:
    return {key: array.tobytes() for key, array in trainer.export(["param"]).items()}
