"""Inductor computes what eager computes, leaves no trace of its warm-up, and compiles exactly once."""

import pytest
import torch
from torch._dynamo.utils import counters

from spec.errors import RuleError
from spec.precision import PROFILES
from tests.torch_impl.small import gpt_problem, make_trainer, mlp_problem, relative_difference, train
from torch_impl.compile import compile_step
from torch_impl.runtime import compiler_options

STATE = ("param", "m", "v")


@pytest.fixture(autouse=True)
def _forget_programs():
    """Programs of other tests count against dynamo's limit."""
    torch._dynamo.reset()
    counters.clear()


def test_inductor_trains_the_mlp_as_eager_does() -> None:
    """Float64, so that only the order of sums differs."""
    problem = mlp_problem(precision="f64", micro_batches=2)
    eager, compiled = make_trainer(problem), make_trainer(problem, "inductor")
    before = compiled.export(STATE)
    losses = train(compiled, 1)
    num_programs = counters["stats"]["unique_graphs"]
    losses += train(compiled, 4, start=1)
    assert losses == pytest.approx(train(eager, 5), rel=1e-13)
    assert relative_difference(compiled.export(STATE), eager.export(STATE)) < 1e-12
    assert compiled.applied == 5
    assert compiled.compiled.mode_ran == "inductor"
    assert compiled.compiled.compile_s > 0
    assert num_programs == counters["stats"]["unique_graphs"] == 2
    assert relative_difference(before, make_trainer(problem).export(STATE)) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "tolerance"), [("f64", 1e-13), ("strict", 1e-6), ("bf16", 4e-4)])
def test_inductor_trains_the_gpt_as_eager_does(precision, tolerance) -> None:
    problem = gpt_problem(precision=precision, micro_batches=2)
    eager, compiled = make_trainer(problem), make_trainer(problem, "inductor")
    assert train(compiled, 5) == pytest.approx(train(eager, 5), rel=tolerance)


def test_options_follow_the_precision_table() -> None:
    assert compiler_options(PROFILES["bf16"]) == {"emulate_precision_casts": True}
    assert compiler_options(PROFILES["tf32"]) == {}
    assert compiler_options(PROFILES["strict"])["deterministic"] is True


@pytest.mark.parametrize(
    ("mode", "rule"),
    [("graph", "needs a CUDA device"), ("graph+inductor", "needs a CUDA device"), ("fast", "a known one")],
)
def test_a_mode_that_cannot_run_here_is_refused(mode: str, rule: str) -> None:
    trainer = make_trainer(mlp_problem())
    batch = {name: torch.from_numpy(array) for name, array in trainer.feed.rows(0).items()}
    with pytest.raises(RuleError, match=rule):
        compile_step(trainer._step, trainer.state, batch, mode, PROFILES["strict"])
