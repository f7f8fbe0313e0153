"""What a capture would freeze of a user's optimizer is found.

On a CPU a replay is a step that begins from the host's numbers at capture.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

import torch_impl
from spec.errors import RuleError
from tests.corpus.p26_frozen_step.uncaptured.torch_side import HostAdam
from tests.torch_impl.own_optimizers import (
    DeviceMomentum,
    Named,
    begun,
    optimizer_of,
    state_of,
)
from torch_impl.graph.own_update import _record, _refusal, check_own, prove_own
from torch_impl.graph.proof import STEPS, Found, find_frozen


class Scheduled(torch.optim.SGD):
    """Warms up by a scheduler of its own."""

    def __init__(self, named: Named) -> None:
        super().__init__(named, lr=1e-1)
        self.scheduler = LambdaLR(self, lambda step: (step + 1) / 10)

    def step(self, closure: None = None) -> None:
        """The update, then the next rate."""
        super().step(closure)
        self.scheduler.step()


class EveryFifth(torch.optim.SGD):
    """Every fifth step is another one."""

    calls = 0

    def step(self, closure: None = None) -> None:
        """Five times as far, every fifth time."""
        self.calls += 1
        for _ in range(5 if self.calls % 5 == 0 else 1):
            super().step(closure)


class Counted(torch.optim.SGD):
    """Later steps are shorter, by a counter wherever that may be."""

    count: Callable[[], float]

    def __init__(self, named: Named) -> None:
        super().__init__(named, lr=0.1)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """SGD at 1 / t."""
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad, alpha=0.1 / (self.count() + 1))


class ByIterator(Counted):
    def __init__(self, named: Named) -> None:
        super().__init__(named)
        self.numbers = itertools.count()
        self.count = lambda: next(self.numbers)


class ByClosure(Counted):
    def __init__(self, named: Named) -> None:
        super().__init__(named)
        made = 0

        def count() -> int:
            nonlocal made
            made += 1
            return made

        self.count = count


class ByNumpy(Counted):
    def __init__(self, named: Named) -> None:
        super().__init__(named)
        self.made = np.int64(0)

    def count(self) -> float:
        self.made += 1
        return float(self.made)


class ByArray(ByNumpy):
    def __init__(self, named: Named) -> None:
        super().__init__(named)
        self.made = np.zeros(1)

    def count(self) -> float:
        self.made += 1
        return self.made.item()


class ByList(Counted):
    def __init__(self, named: Named) -> None:
        super().__init__(named)
        self.history: list[float] = []

    def count(self) -> float:
        self.history.append(1.0)
        return len(self.history)


class BySlots(Counted):
    class Counter:
        __slots__ = ("made",)

    def __init__(self, named: Named) -> None:
        super().__init__(named)
        self.counter = self.Counter()
        self.counter.made = 0

    def count(self) -> float:
        self.counter.made += 1
        return self.counter.made


def check(trainer: torch_impl.Trainer, exact: bool = True) -> Found:
    own, batch = trainer._own, trainer.stage(trainer.feed.rows(1))
    assert own is not None

    def eager() -> None:
        trainer._step(trainer.state, batch)

    def replay() -> None:
        with own.holding():
            eager()

    return check_own(own, trainer.state, eager, replay, exact=exact)  # type: ignore[arg-type]


def test_a_counter_on_the_host_is_found_from_the_second_step_on() -> None:
    trainer = begun(lambda named: HostAdam(named, lr=1e-3))
    before = state_of(trainer)
    with pytest.raises(RuleError) as refused:
        check(trainer)
    numbers = refused.value.numbers
    assert "trains otherwise than eager from step 2 on: its state on the host is frozen" in numbers
    assert "num_steps: 1 -> 4" in numbers and "steps before 2 are equal" in numbers
    assert "fc" in numbers and "capturable=True" in refused.value.mend
    assert all(map(torch.equal, before, state_of(trainer))), "the check left a trace"
    assert optimizer_of(trainer).num_steps == 1


def test_a_rate_on_the_host_is_found() -> None:
    with pytest.raises(RuleError, match=r"from step 2 on.*scheduler/last_epoch: 1 -> 4"):
        check(begun(Scheduled))


def test_a_counter_of_which_a_few_steps_show_nothing_is_refused_all_the_same() -> None:
    with pytest.raises(RuleError, match=r"calls: 1 -> 4\); 3 steps show nothing of it"):
        check(begun(lambda named: EveryFifth(named, lr=0.1)))


@pytest.mark.parametrize("make", [ByIterator, ByClosure])
@pytest.mark.parametrize("exact", [True, False])
def test_a_counter_that_cannot_be_looked_into_is_found_since_eager_steps_do_not_repeat(
    make: Callable, exact: bool
) -> None:
    with pytest.raises(RuleError, match="the eager steps do not repeat themselves") as refused:
        check(begun(make), exact)
    assert "trains otherwise" not in refused.value.numbers


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (ByNumpy, "made: 4 -> 16"),
        (ByArray, "made: 4 -> 16"),
        (ByList, "history/10 is new, history/11 is new"),
        (BySlots, "counter/made: 4 -> 16"),
    ],
)
def test_a_counter_is_found_wherever_it_can_be_looked_into(make: Callable, shown: str) -> None:
    trainer = begun(make)
    count = optimizer_of(trainer).count
    with pytest.raises(RuleError, match=r"from step [12] on: its state on the host is frozen") as refused:
        check(trainer)
    assert shown in refused.value.numbers and "the eager steps repeat themselves" in refused.value.numbers
    assert count() == 5, "the check left a trace"


def test_where_nothing_moves_nothing_is_compared_and_the_record_says_so() -> None:
    trainer = begun(lambda named: torch.optim.SGD(named, lr=0.0))
    record = _record(check(trainer), exact=True)
    assert (record["steps_compared"], record["bits_compared"]) == (0, False)
    assert "moved in 0 of 3 steps" in record["not_compared"]
    assert _record(check(begun(DeviceMomentum)), exact=True) == {"steps_compared": 3, "bits_compared": True}


def test_rounding_may_part_a_tensor_from_itself_only_where_bits_are_not_promised() -> None:
    one = Found(frozen=None, floors={"fc.weight": 0.0, "fc.bias": 1e-4, "bias_before_norm": 1.9}, moved=3)
    assert not _refusal(one, "", exact=False)
    assert "bias_before_norm is up to 1.9e+00 of its way off" in _refusal(one, "", exact=True)
    many = Found(frozen=None, floors={"fc.weight": 0.1, "fc.bias": 0.1, "untouched": 0.0}, moved=3)
    assert "do not repeat themselves" in _refusal(many, "", exact=False)


class LaterState(torch.optim.SGD):
    """Makes its momentum in the second step."""

    def __init__(self, named: Named) -> None:
        super().__init__(named, lr=0.1)
        self.calls = torch.zeros(())
        self.kept: dict[str, Tensor] = {}

    def step(self, closure: None = None) -> None:
        """SGD, and something beside it."""
        super().step(closure)
        self.calls += 1
        if self.calls > 1:
            self.kept["late"] = self.param_groups[0]["params"][0].detach().clone()
            self.late = True


def test_what_is_made_in_a_later_step_is_named_and_does_not_stay() -> None:
    trainer = begun(LaterState)
    with pytest.raises(RuleError, match="kept/late is new, late is new"):
        check(trainer)
    assert not optimizer_of(trainer).kept and not hasattr(optimizer_of(trainer), "late")


@pytest.mark.parametrize(
    "make", [DeviceMomentum, lambda named: torch.optim.Adam(named, lr=1e-3)], ids=["by_hand", "adam"]
)
def test_what_keeps_its_state_in_tensors_trains_as_eagerly(make: Callable) -> None:
    trainer = begun(make)
    before = state_of(trainer)
    check(trainer)
    assert all(map(torch.equal, before, state_of(trainer))), "the check left a trace"


@pytest.mark.parametrize(("noise", "bias", "found"), [(0.0, 0.0, 0), (1e-3, 0.0, 0), (1e-3, 1.0, 2)])
def test_replays_are_held_against_how_eager_steps_repeat_themselves(
    noise: float, bias: float, found: int
) -> None:
    """Steps of one, with noise of their own; the replays' later steps are larger by a bias."""
    generator = torch.Generator().manual_seed(0)
    place, made = torch.zeros(1000), [0]

    def step(extra: float) -> None:
        place.add_(1 + noise * torch.randn(1000, generator=generator) + extra)

    def replay() -> None:
        step(bias if made[0] else 0.0)
        made[0] += 1

    steps = find_frozen(lambda: step(0.0), replay, lambda: place.zero_(), lambda: {"place": place})
    frozen = steps.frozen
    assert steps.moved == STEPS and (steps.floor > 0) == (noise > 0)
    assert (frozen.step if frozen else 0) == found
    assert made[0] == STEPS
    if frozen:
        assert frozen.tensor == "place" and frozen.norms["captured"][1] > frozen.norms["eager"][1]


class Ranks:
    """Stands for a captured step of one rank of several."""

    closed = False

    def __init__(self, others: list[str]) -> None:
        self.step, self.others, self.told = self, others, list[str | None]()

    def program(self, batch: Any) -> None:
        raise MemoryError("no memory left")

    def rewind(self) -> None:
        pass

    def agree(self, failure: str | None) -> list[str]:
        self.told.append(failure)
        return [failure, *self.others] if failure else self.others

    def close(self) -> None:
        self.closed = True


def test_whatever_fails_in_the_comparison_is_told_to_the_other_ranks() -> None:
    trainer, ranks = begun(DeviceMomentum), Ranks([])
    assert trainer._own is not None
    with pytest.raises(MemoryError):
        prove_own(trainer._own, ranks, trainer.state, {}, exact=True)  # type: ignore[arg-type]
    assert ranks.closed and "MemoryError: no memory left" in str(ranks.told[0])
