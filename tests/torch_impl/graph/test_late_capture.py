"""A trainer captures a user's own optimizer after its first step; what that keeps is looked after.

A replay is stood in for by the trainer's own step.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torch_impl
from spec.errors import RuleError
from tests.torch_impl.own_optimizers import (
    DeviceMomentum,
    Named,
    begun,
    optimizer_of,
    state_of,
    trainer_of,
)
from torch_impl.compile import Compiled, uncompiled
from torch_impl.graph.adapt import ArenaState
from torch_impl.graph.ledger import Ledger


def test_state_that_is_replaced_stays_where_it_is() -> None:
    trainer = begun(DeviceMomentum)
    assert trainer._own is not None
    with trainer._own.holding():
        places = [tensor.data_ptr() for tensor in trainer._own.lasting()]
    for step in (1, 2):
        trainer.step(trainer.feed.rows(step))
    assert places == [tensor.data_ptr() for tensor in trainer._own.lasting()]


class Replayed:
    """Stands for a captured step: it launches the trainer's own, and counts from its own first."""

    def __init__(self, step: Any, arena: Any) -> None:
        self._step, self._arena, self._metrics = step, arena, list[list[float]]()

    def stage(self, rows: dict[str, Any]) -> dict[str, Tensor]:
        return {name: torch.as_tensor(values) for name, values in rows.items()}

    def launch(self, batch: dict[str, Tensor]) -> None:
        self._step(self._arena, batch)
        self._metrics.append(self._arena.metrics.tolist())

    def metrics(self, number: int) -> list[float]:
        return self._metrics[number]


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Has trainers capture without a GPU; the modes in which steps were compiled."""
    modes: list[str] = []

    def compile_step(step: Any, arena: Any, batch: Any, mode: str, *args: Any) -> Compiled:
        modes.append(mode)
        compiled = uncompiled(step, mode, "stands for a capture")
        if mode == "eager":
            return compiled
        with step.update.holding():
            return replace(compiled, whole=Replayed(step, arena))  # type: ignore[arg-type]

    monkeypatch.setattr(torch_impl.trainer, "compile_step", compile_step)
    monkeypatch.setattr(torch_impl.trainer, "check_mode", lambda *args: None)
    return modes


def test_the_first_step_runs_eagerly_and_steps_are_counted_on(modes: list[str]) -> None:
    eager, graph = trainer_of(DeviceMomentum), trainer_of(DeviceMomentum, "graph")
    seen = []
    for step in range(5):
        for trainer in (eager, graph):
            trainer.step(trainer.feed.rows(step))
        if step == 0:
            assert graph.compiled is not None
            assert "makes its state in it" in graph.compiled.reasons["capture"]
        for back in range(min(2, step + 1)):
            seen.append((graph.metrics(step - back).loss, eager.metrics(step - back).loss))
    assert modes == ["eager", "eager", "graph"], "one trainer is eager, the other becomes it"
    assert all(one == other for one, other in seen)
    assert graph.metrics().step == 4 and graph.applied == eager.applied == 5


def test_a_first_step_that_is_refused_makes_no_state_to_capture(modes: list[str]) -> None:
    eager, graph = trainer_of(DeviceMomentum), trainer_of(DeviceMomentum, "graph")
    for trainer in (eager, graph):
        rows = trainer.feed.rows(0)
        trainer.step({key: np.full_like(array, np.inf) for key, array in rows.items()})
        for step in range(3):
            trainer.step(trainer.feed.rows(step))
    assert modes[1:] == ["eager", "eager", "graph"] and graph.metrics().skipped == 1
    ends = eager.export(["param"]), graph.export(["param"])
    assert all(ends[0][key].tobytes() == ends[1][key].tobytes() for key in ends[0])


def test_a_graph_mode_needs_a_gpu_from_the_first_step_on() -> None:
    trainer = trainer_of(DeviceMomentum, "graph")
    with pytest.raises(RuleError, match="needs a CUDA device"):
        trainer.step(trainer.feed.rows(0))


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_rate_that_is_set_before_the_capture_is_captured_and_a_later_one_taken_or_refused(
    name: str, modes: list[str]
) -> None:
    makes = {
        "adam": lambda named: torch.optim.Adam(named, lr=1e-3),
        "sgd": lambda named: torch.optim.SGD(named, lr=1e-3),
    }
    ends = []
    for mode in ("eager", "graph"):
        trainer = trainer_of(makes[name], mode)
        for step in range(4):
            if step and (step == 1 or name == "adam"):
                optimizer_of(trainer).param_groups[0]["lr"] = 1e-3 / (step + 1)
            trainer.step(trainer.feed.rows(step))
        ends.append(trainer.export(["param"]))
    assert all(np.allclose(ends[0][key], ends[1][key], rtol=1e-6, atol=1e-8) for key in ends[0])
    group = optimizer_of(trainer).param_groups[0]
    assert isinstance(group["lr"], Tensor) == (name == "adam") and modes[-1] == "graph"
    if name == "sgd":
        group["lr"] = 0.2
        with pytest.raises(RuleError, match=r"group 0 lr: 0\.0005 -> 0\.2"):
            trainer.step(trainer.feed.rows(4))


def test_a_refused_capture_is_tried_again_and_not_gone_on_without(
    modes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(DeviceMomentum, "graph")
    trainer.step(trainer.feed.rows(0))

    def compile_step(*args: Any) -> Compiled:
        raise RuleError("A captured optimizer trains as it does eagerly.")

    with monkeypatch.context() as patch:
        patch.setattr(torch_impl.trainer, "compile_step", compile_step)
        for _ in range(2):
            with pytest.raises(RuleError, match="as it does eagerly"):
                trainer.step(trainer.feed.rows(1))
    trainer.step(trainer.feed.rows(1))
    assert trainer.compiled is not None and trainer.compiled.whole is not None
    assert trainer.num_steps == trainer.applied == 2


class ReplacedState(torch.optim.Optimizer):
    """Its state is a new dictionary in every step, and numbers stand in it too."""

    def __init__(self, named: Named) -> None:
        super().__init__(named, {"lr": 1e-2})
        self.state["step"] = 0  # type: ignore[index]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """SGD with momentum."""
        self.state["step"] += 1  # type: ignore[index,operator]
        for p in self.param_groups[0]["params"]:
            before = self.state[p].get("m", torch.zeros_like(p))
            self.state[p] = {"m": 0.9 * before + p.grad}
            p.sub_(self.state[p]["m"], alpha=1e-2)


class OwnContainers(torch.optim.Optimizer):
    """Its state lies in a dictionary and in tuples of its own, filled in the first step."""

    def __init__(self, named: Named) -> None:
        super().__init__(named, {"lr": 1e-2})
        self.m: dict[Any, Tensor] = {}
        self.pairs: dict[Any, tuple[Tensor, int]] = {}
        self.average = nn.Linear(2, 2)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """SGD with momentum, and with another one."""
        self.average.weight.add_(self.param_groups[0]["params"][0].grad.sum())
        for p in self.param_groups[0]["params"]:
            self.m[p] = 0.9 * self.m.get(p, torch.zeros_like(p)) + p.grad
            other, _ = self.pairs.get(p, (torch.zeros_like(p), 1))
            self.pairs[p] = (0.5 * other + p.grad, 1)
            p.sub_(self.m[p] + self.pairs[p][0], alpha=1e-2)


@pytest.mark.parametrize("make", [ReplacedState, OwnContainers, DeviceMomentum])
def test_a_refused_update_leaves_all_tensors_wherever_they_lie(make: Callable) -> None:
    ends = []
    for bad in (False, True):
        trainer = trainer_of(make)
        for step in range(4):
            if bad and step == 2:
                rows = {
                    name: np.full_like(values, np.nan) if values.dtype == np.float32 else values
                    for name, values in trainer.feed.rows(99).items()
                }
                before = state_of(trainer)[-4:]
                trainer.step(rows)
                assert trainer.metrics().skipped == 1
                assert all(map(torch.equal, before, state_of(trainer)[-4:]))
            trainer.step(trainer.feed.rows(step))
        assert trainer.metrics().skipped == int(bad)
        ends.append(trainer.export(["param"]))
    assert all(ends[0][key].tobytes() == ends[1][key].tobytes() for key in ends[0])


def test_a_state_that_is_loaded_after_the_capture_is_seen(modes: list[str]) -> None:
    trainer = trainer_of(lambda named: torch.optim.SGD(named, lr=0.1, momentum=0.9), "graph")
    for step in range(2):
        trainer.step(trainer.feed.rows(step))
    assert trainer._own is not None
    ledger = Ledger(ArenaState(trainer.state, trainer._own.lasting).pointers)  # type: ignore[arg-type]
    assert ledger.moved() == []
    optimizer_of(trainer).load_state_dict(copy.deepcopy(optimizer_of(trainer).state_dict()))
    assert ledger.moved() and all(name.startswith("extra/") for name in ledger.moved())
    with pytest.raises(RuleError, match="state: replaced, as load_state_dict does"):
        trainer.step(trainer.feed.rows(2))


class Swapped(torch.optim.Optimizer):
    """Goes by the gradient of two steps before, in buffers that change places."""

    def __init__(self, named: Named) -> None:
        super().__init__(named, {"lr": 1e-2})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """SGD, late."""
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["last"], state["before"] = torch.zeros_like(p), torch.zeros_like(p)
            p.sub_(state["before"], alpha=1e-2)
            state["last"], state["before"] = state["before"].copy_(p.grad), state["last"]


def test_tensors_that_change_places_keep_their_values() -> None:
    trainer = trainer_of(Swapped)
    grads: list[Tensor] = []
    for step in range(4):
        before = trainer.state.tensors("param")["fc1.weight"].clone()
        trainer.step(trainer.feed.rows(step))
        grads.append(trainer.state.tensors("clipped")["fc1.weight"].clone())
        way = before - trainer.state.tensors("param")["fc1.weight"]
        late = grads[step - 2] if step >= 2 else torch.zeros_like(way)
        torch.testing.assert_close(way, 1e-2 * late, rtol=1e-3, atol=1e-7)
