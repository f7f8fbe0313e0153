"""A capture that reads a step counter on the host freezes it: the capture behind case P26.

The optimizers of users' own that train captured as they do eagerly, and those that are refused.
"""

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spec.edits import constants
from spec.errors import RuleError
from spec.presets import run_spec
from spec.run import Execution, OwnOptimizer
from spec.weights import init_parameters
from tests.corpus.p26_frozen_step.uncaptured.torch_side import HostAdam
from tests.corpus.scheduled_torch import Scheduled
from tests.parity.conftest import run_in
from tests.torch_impl.own_optimizers import DeviceMomentum, Named
from torch_impl.models import Side, preset_side
from torch_impl.trainer import Trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match"),
    # Reference steps of a capturable optimizer run eagerly.
    pytest.mark.filterwarnings("ignore:This instance was constructed with capturable=True"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
]
CASE = Path(__file__).resolve().parents[2] / "tests" / "corpus" / "p26_frozen_step"
CUDA = Execution(device="cuda")
Make = Callable[[Named], torch.optim.Optimizer]


def _replays(capturable: bool) -> list[torch.Tensor]:
    """Ten updates of one parameter by the same gradients, the step captured once and replayed."""
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, 64, device="cuda"))
    grads = torch.randn(10, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    parameter.grad = grads[0].clone()
    optimizer = torch.optim.Adam([parameter], lr=1e-3, capturable=capturable)
    # State is made outside of the capture, and then as it was at first.
    optimizer.step()
    with torch.no_grad():
        parameter.copy_(torch.linspace(-1, 1, 64, device="cuda"))
        for value in optimizer.state[parameter].values():
            value.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    found = []
    for grad in grads:
        parameter.grad.copy_(grad)
        graph.replay()
        found.append(parameter.detach().clone())
    return found


# The capture that the refusal leaves is empty.
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_torch_refuses_what_would_freeze() -> None:
    with pytest.raises(RuntimeError, match="capturable"):
        _replays(capturable=False)


def test_replays_of_a_capturable_step_equal_eager_ones() -> None:
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, 64, device="cuda"))
    grads = torch.randn(10, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    optimizer = torch.optim.Adam([parameter], lr=1e-3, capturable=True)
    for grad, replayed in zip(grads, _replays(capturable=True), strict=True):
        parameter.grad = grad.clone()
        optimizer.step()
        torch.testing.assert_close(replayed, parameter.detach(), rtol=1e-6, atol=1e-7)


def trainer_of(mode: str, make: Make) -> Trainer:
    """The toy MLP in strict, its optimizer the user's own."""
    spec = run_spec("toy-mlp", steps=40, devices=1, execution=CUDA)
    problem = replace(spec.problem, optimizer=OwnOptimizer(max_norm=0.5))
    preset = preset_side(problem, constants(problem))
    trainer = Trainer(problem, CUDA, mode, side=Side(preset.build, preset.loss, make))
    initial = init_parameters(problem.parameter_table(), problem.seed_weights)
    trainer.load({f"param/{name}": values for name, values in initial.items()})
    return trainer


def trained(trainer: Trainer, steps: int = 12) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses, each read one step late, and the parameters at the end."""
    losses = []
    for number in range(steps):
        trainer.step(trainer.feed.rows(number))
        if number:
            losses.append(trainer.metrics(number - 1).loss)
    losses.append(trainer.metrics().loss)
    return losses, trainer.export(["param"])


def end_whole(trainer: Trainer) -> None:
    assert trainer.compiled is not None and trainer.compiled.whole is not None, trainer.compiled
    trainer.compiled.whole.close()


class ByIterator(torch.optim.Optimizer):
    """Its counter cannot be looked into."""

    def __init__(self, named: Named) -> None:
        super().__init__(named, {"lr": 1e-2})
        self.numbers = itertools.count(1)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """SGD at a rate that falls."""
        rate = self.param_groups[0]["lr"] / next(self.numbers)
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad, alpha=rate)


def adam_on_the_device(named: Named) -> torch.optim.Optimizer:
    """As the graph modes make Adam by themselves."""
    return torch.optim.Adam(named, lr=torch.tensor(1e-3, device="cuda"), capturable=True)


PAIRS: dict[str, tuple[Make, Make]] = {
    "adam": (lambda named: torch.optim.Adam(named, lr=1e-3), adam_on_the_device),
    "sgd": (lambda named: torch.optim.SGD(named, lr=1e-2, momentum=0.9, dampening=0.5),) * 2,
    "by_hand": (DeviceMomentum, DeviceMomentum),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_captured_optimizer_trains_as_it_does_eagerly(name: str) -> None:
    given, eager = PAIRS[name]
    graph = trainer_of("graph", given)
    losses, params = trained(graph)
    assert graph.compiled is not None and graph.compiled.mode_ran == "graph", graph.compiled.reasons
    assert graph.compiled.proven is not None
    assert graph.compiled.proven["own_optimizer"]["bits_compared"]
    end_whole(graph)
    expected, others = trained(trainer_of("eager", eager))
    assert losses == expected
    assert all(params[key].tobytes() == others[key].tobytes() for key in others)


def test_a_counter_on_the_host_is_refused_with_what_it_does() -> None:
    trainer = trainer_of("graph", lambda named: HostAdam(named, lr=1e-3))
    trainer.step(trainer.feed.rows(0))
    with pytest.raises(RuleError) as refused:
        trainer.step(trainer.feed.rows(1))
    numbers = refused.value.numbers
    assert "from step 2 on: its state on the host is frozen in the graph (num_steps: 1 -> 4" in numbers
    assert "steps before 2 are equal" in numbers and "the capture carries it" in numbers
    assert "capturable=True" in refused.value.mend


def test_a_counter_that_cannot_be_looked_into_is_refused_each_time() -> None:
    trainer = trainer_of("graph", ByIterator)
    trainer.step(trainer.feed.rows(0))
    for _ in range(2):
        with pytest.raises(RuleError, match="the eager steps do not repeat themselves"):
            trainer.step(trainer.feed.rows(1))


def set_rate(optimizer: torch.optim.Optimizer, rate: float, mode: str) -> None:
    """As a loop does it; run eagerly, what is capturable wants a tensor."""
    group = optimizer.param_groups[0]
    is_tensor = mode == "eager" and isinstance(group["lr"], torch.Tensor)
    group["lr"] = torch.tensor(rate, device="cuda") if is_tensor else rate


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_rate_that_is_set_after_the_first_step_is_captured(name: str) -> None:
    ends = {}
    for mode, make in zip(("graph", "eager"), PAIRS[name], strict=True):
        made: list[torch.optim.Optimizer] = []
        trainer = trainer_of(mode, lambda named, make=make, made=made: made.append(make(named)) or made[0])  # type: ignore[misc]
        for number in range(6):
            if number == 1 or (number == 4 and name == "adam"):
                set_rate(made[0], 5e-3 / number, mode)
            trainer.step(trainer.feed.rows(number))
        ends[mode] = trainer.export(["param"])
        if mode == "graph":
            if name == "sgd":
                set_rate(made[0], 1e-4, mode)
                with pytest.raises(RuleError, match=r"group 0 lr: 0\.005 -> 0\.0001"):
                    trainer.step(trainer.feed.rows(6))
            end_whole(trainer)
    assert all(ends["graph"][key].tobytes() == ends["eager"][key].tobytes() for key in ends["eager"])


def test_what_is_written_into_a_rate_of_ones_own_is_taken_over_from_host_and_device() -> None:
    ends = []
    for device in ("cpu", "cuda"):
        rate = torch.tensor(1e-3, device=device)
        trainer = trainer_of("graph", lambda named, rate=rate: torch.optim.Adam(named, lr=rate))
        for number in range(6):
            rate.fill_(1e-3 / (number + 1))
            trainer.step(trainer.feed.rows(number))
        ends.append(trainer.export(["param"]))
        end_whole(trainer)
    assert all(ends[0][key].tobytes() == ends[1][key].tobytes() for key in ends[0])


def test_a_schedule_on_the_host_is_refused_and_a_rate_set_between_launches_is_taken() -> None:
    trainer = trainer_of("graph", lambda named: Scheduled(named, lambda step: (step + 1) / 10))
    trainer.step(trainer.feed.rows(0))
    with pytest.raises(RuleError, match="scheduler/last_epoch"):
        trainer.step(trainer.feed.rows(1))
    made: list[torch.optim.Optimizer] = []
    ends = {}
    for mode in ("graph", "eager"):
        made.clear()
        trainer = trainer_of(mode, lambda named: made.append(adam_on_the_device(named)) or made[0])  # type: ignore[func-returns-value]
        trained(trainer, 4)
        made[0].param_groups[0]["lr"] = 1e-2 if mode == "graph" else torch.tensor(1e-2, device="cuda")
        for number in range(4, 8):
            trainer.step(trainer.feed.rows(number))
        ends[mode] = trainer.export(["param"])
        if mode == "graph":
            end_whole(trainer)
    assert all(ends["graph"][key].tobytes() == ends["eager"][key].tobytes() for key in ends["eager"])


def test_the_run_is_refused_end_to_end_and_the_capture_named(tmp_path: Path) -> None:
    """Case P26: uncaptured the pair's optimizer is right, as `tests.corpus P26` finds on a CPU."""
    words = f"run {CASE}/uncaptured --backend torch --no-time --device cuda --devices 1 --mode torch=graph"
    said = " ".join(run_in(tmp_path, words, 2).stderr.split())
    assert "the captured optimizer trains otherwise than eager from step 2 on" in said
    assert "num_steps: 1 -> 4" in said and "so the capture carries it, not the framework" in said


def test_with_its_counter_on_the_device_the_pair_is_captured_and_the_same(tmp_path: Path) -> None:
    shutil.copytree(CASE / "uncaptured", tmp_path / "case" / "mended")
    shutil.copy(CASE / "jax_side.py", tmp_path / "case")
    side = tmp_path / "case" / "mended" / "torch_side.py"
    side.write_text(side.read_text().replace("return HostAdam(", "return torch.optim.Adam("))
    words = f"run {tmp_path}/case/mended --no-time --device cuda --devices 1 --mode torch=graph"
    done = run_in(tmp_path, words)
    content: dict[str, Any] = json.loads(next(tmp_path.glob("runs/0001_*/result.json")).read_text())
    assert done.stdout.startswith("SAME")
    assert content["capture"]["torch"]["own_optimizer"]["steps_compared"] == 3


def test_with_a_compiled_model_the_optimizer_is_captured_beside_it() -> None:
    given, eager = PAIRS["adam"]
    graph = trainer_of("graph+inductor", given)
    losses, _ = trained(graph)
    end_whole(graph)
    np.testing.assert_allclose(losses, trained(trainer_of("eager", eager))[0], rtol=1e-4)
