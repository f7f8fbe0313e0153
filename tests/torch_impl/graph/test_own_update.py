"""What a capture would freeze of a user's optimizer is found.

On a CPU a replay is a step that begins from the host's numbers at capture.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import torch_impl
from spec.edits import constants
from spec.errors import RuleError
from spec.run import Execution, OwnOptimizer
from spec.weights import init_parameters
from tests.corpus.p26_frozen_step.uncaptured.torch_side import HostAdam
from tests.torch_impl.small import mlp_problem
from torch_impl.compile import Compiled, uncompiled
from torch_impl.graph.held import Held, tensors
from torch_impl.graph.own_update import check_own
from torch_impl.graph.proof import STEPS, find_frozen
from torch_impl.models import preset_side
from torch_impl.own_optimizer import _Own

PROBLEM = mlp_problem(optimizer=OwnOptimizer(max_norm=0.5))
Named = list[tuple[str, nn.Parameter]]


class DeviceMomentum(torch.optim.Optimizer):
    """Its counter is a tensor; its momentum is a new tensor after every step."""

    def __init__(self, named: Named) -> None:
        super().__init__(named, {"lr": 1e-2})
        self.num_steps = torch.zeros(())

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """SGD with momentum at a rate that falls."""
        self.num_steps += 1
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state["m"] = 0.9 * state["m"] + p.grad if state else p.grad.clone()
            p.sub_(state["m"] * (self.param_groups[0]["lr"] / self.num_steps))


class Scheduled(torch.optim.SGD):
    """Warms up by a scheduler of its own."""

    def __init__(self, named: Named) -> None:
        super().__init__(named, lr=1e-1)
        self.scheduler = LambdaLR(self, lambda step: (step + 1) / 10)

    def step(self, closure: None = None) -> None:
        """The update, then the next rate."""
        super().step(closure)
        self.scheduler.step()


def trainer_of(make: Callable[[Named], torch.optim.Optimizer], mode: str = "eager") -> torch_impl.Trainer:
    preset = preset_side(PROBLEM, constants(PROBLEM))
    side = torch_impl.Side(preset.build, preset.loss, make)
    trainer = torch_impl.Trainer(PROBLEM, Execution(), mode, side=side)
    initial = init_parameters(PROBLEM.parameter_table(), PROBLEM.seed_weights)
    trainer.load({f"param/{name}": array for name, array in initial.items()})
    return trainer


def begun(make: Callable[[Named], torch.optim.Optimizer]) -> torch_impl.Trainer:
    """A trainer after its first step, in which the optimizer made its state."""
    trainer = trainer_of(make)
    trainer.step(trainer.feed.rows(0))
    return trainer


class EveryFifth(torch.optim.SGD):
    """Every fifth step is another one."""

    calls = 0

    def step(self, closure: None = None) -> None:
        """Five times as far, every fifth time."""
        self.calls += 1
        for _ in range(5 if self.calls % 5 == 0 else 1):
            super().step(closure)


def check(trainer: torch_impl.Trainer) -> None:
    own, batch = trainer._own, trainer.stage(trainer.feed.rows(1))
    assert own is not None

    def eager() -> None:
        trainer._step(trainer.state, batch)

    def replay() -> None:
        with own.holding():
            eager()

    check_own(own, trainer.state, eager, replay, least=0.0)  # type: ignore[arg-type]


def state_of(trainer: torch_impl.Trainer) -> list[Tensor]:
    assert trainer._own is not None
    return [tensor.clone() for tensor in [*trainer.state.lasting(), *trainer._own.lasting()]]  # type: ignore[union-attr]


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
    assert trainer._own._begun._optimizer.num_steps == 1  # type: ignore[union-attr]


def test_a_rate_on_the_host_is_found() -> None:
    with pytest.raises(RuleError, match=r"from step 2 on.*scheduler/last_epoch: 1 -> 4"):
        check(begun(Scheduled))


def test_a_counter_of_which_a_few_steps_show_nothing_is_refused_all_the_same() -> None:
    with pytest.raises(RuleError, match=r"calls: 1 -> 4\); 3 steps show nothing of it"):
        check(begun(lambda named: EveryFifth(named, lr=0.1)))


@pytest.mark.parametrize(
    "make", [DeviceMomentum, lambda named: torch.optim.Adam(named, lr=1e-3)], ids=["by_hand", "adam"]
)
def test_what_keeps_its_state_in_tensors_trains_as_eagerly(make: Callable) -> None:
    trainer = begun(make)
    before = state_of(trainer)
    check(trainer)
    assert all(map(torch.equal, before, state_of(trainer))), "the check left a trace"


def test_state_that_is_replaced_stays_where_it_is() -> None:
    trainer = begun(DeviceMomentum)
    assert trainer._own is not None
    places = [tensor.data_ptr() for tensor in trainer._own.lasting()]
    for step in (1, 2):
        trainer.step(trainer.feed.rows(step))
    assert places == [tensor.data_ptr() for tensor in trainer._own.lasting()]


def test_a_rate_that_was_set_later_is_taken_where_it_is_a_tensor_and_refused_where_not() -> None:
    trainer = begun(lambda named: torch.optim.SGD(named, lr=0.1))
    assert trainer._own is not None
    group = trainer._own._begun._optimizer.param_groups[0]
    trainer._own.take_rates()
    group["lr"] = 0.2
    with pytest.raises(RuleError, match=r"lr 0\.1 -> 0\.2"):
        trainer._own.take_rates()
    rate = torch.tensor(0.1)
    trainer._own._begun._rates[0] = rate
    trainer._own.take_rates()
    assert group["lr"] is rate and float(rate) == pytest.approx(0.2)


def test_places_are_found_in_attributes_dictionaries_lists_and_objects() -> None:
    class Inner:
        def __init__(self, root: object) -> None:
            self.root, self.count, self.history = root, 0, [1.0]

    class Root:
        def __init__(self) -> None:
            self.inner, self.betas = Inner(self), (0.9, 0.99)
            self.weight, self.kept = nn.Parameter(torch.zeros(2)), {"host": torch.zeros(2, device="cpu")}
            self.function = lambda: None

    root = Root()
    held = Held(root, torch.device("cuda"), {})
    assert list(tensors(root, {})) == ["kept/host"]
    root.inner.count, root.betas, root.inner.history = 3, (0.8, 0.99), [2.0, 4.0]
    root.kept["host"] += 1
    assert held.changed() == [
        "inner/count: 0 -> 3",
        "inner/history/0: 1 -> 2",
        "betas: (0.9, 0.99) -> (0.8, 0.99)",
        "kept/host: a tensor (2,) -> a tensor (2,)",
    ]
    held.put_back()
    assert held.changed() == [] and root.inner.history == [1.0] and not root.kept["host"].any()


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

    frozen = find_frozen(lambda: step(0.0), replay, lambda: place.zero_(), lambda: {"place": place})
    assert (frozen.step if frozen else 0) == found
    assert made[0] == STEPS
    if frozen:
        assert frozen.tensor == "place" and frozen.norms["captured"][1] > frozen.norms["eager"][1]


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


def test_the_first_step_runs_eagerly_and_steps_are_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []

    def compile_step(step: Any, arena: Any, batch: Any, mode: str, *args: Any) -> Compiled:
        modes.append(mode)
        compiled = uncompiled(step, mode, "stands for a capture")
        return compiled if mode == "eager" else replace(compiled, whole=Replayed(step, arena))  # type: ignore[arg-type]

    monkeypatch.setattr(torch_impl.trainer, "compile_step", compile_step)
    monkeypatch.setattr(torch_impl.trainer, "check_mode", lambda *args: None)
    monkeypatch.setattr(_Own, "make_capturable", lambda self: None)
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


def test_a_graph_mode_needs_a_gpu_from_the_first_step_on() -> None:
    trainer = trainer_of(DeviceMomentum, "graph")
    with pytest.raises(RuleError, match="needs a CUDA device"):
        trainer.step(trainer.feed.rows(0))
