"""Optimizers of the user's own on both sides, as torch.optim and optax have them, clipped and guarded."""

from collections.abc import Callable

import numpy as np
import optax
import pytest
import torch

import jax_impl
import torch_impl
from jax_impl.models import preset_side as jax_preset_side
from jax_impl.own_optimizer import updates as jax_updates
from spec.edits import Edit, constants
from spec.errors import RuleError
from spec.run import Execution, OwnOptimizer, Problem
from spec.weights import init_parameters
from tests.jax_impl.small import bare, mlp_problem, relative_difference
from torch_impl.models import preset_side as torch_preset_side
from torch_impl.own_optimizer import updates as torch_updates

PROBLEM = mlp_problem(optimizer=OwnOptimizer(max_norm=0.5))

MAKERS: dict[str, tuple[Callable, Callable]] = {
    "sgd": (
        lambda named: torch.optim.SGD(named, lr=0.05, momentum=0.9),
        lambda: optax.sgd(0.05, momentum=0.9),
    ),
    "adam": (
        lambda named: torch.optim.Adam(named, lr=1e-2, betas=(0.9, 0.99)),
        lambda: optax.adam(1e-2, 0.9, 0.99),
    ),
}


def torch_trainer(make: Callable, problem: Problem = PROBLEM, mode: str = "eager"):
    preset = torch_preset_side(problem, constants(problem))
    side = torch_impl.Side(preset.build, preset.loss, make)
    return started(torch_impl.Trainer(problem, Execution(), mode, side=side), problem)


def jax_trainer(make: Callable, problem: Problem = PROBLEM, mode: str = "jit"):
    preset = jax_preset_side(problem, constants(problem))
    side = jax_impl.Side(preset.build, preset.loss, make)
    return started(jax_impl.Trainer(problem, Execution(), mode, side=side), problem)


def started(trainer, problem: Problem):
    initial = init_parameters(problem.parameter_table(), problem.seed_weights)
    trainer.load({f"param/{name}": array for name, array in initial.items()})
    return trainer


@pytest.mark.parametrize("name", MAKERS)
def test_both_sides_go_where_the_libraries_say(name: str) -> None:
    """The reference: torch's optimizer on the module itself, clipped by torch's own function."""
    one, other = torch_trainer(MAKERS[name][0]), jax_trainer(MAKERS[name][1])
    reference = torch_preset_side(PROBLEM, constants(PROBLEM))
    module = reference.build().to_empty(device="cpu")
    for key, parameter in module.named_parameters():
        parameter.data = torch.from_numpy(init_parameters(PROBLEM.parameter_table(), 0)[key].copy())
    optimizer = MAKERS[name][0](list(module.named_parameters()))
    for step in range(6):
        rows = one.feed.rows(step)
        one.step(rows)
        other.step(rows)
        total, count = reference.loss(module, {k: torch.from_numpy(v) for k, v in rows.items()})
        optimizer.zero_grad()
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
    expected = {key: parameter.detach().numpy() for key, parameter in module.named_parameters()}
    assert relative_difference(bare(one.export(["param"])), expected) < 2e-6
    assert relative_difference(bare(other.export(["param"])), expected) < 2e-6
    assert (one.applied, other.applied) == (6, 6)
    # What rate an optimizer of one's own takes is not known, and is not made up.
    assert np.isnan(one.metrics().lr) and np.isnan(other.metrics().lr)


@pytest.mark.parametrize("make", [torch_trainer, jax_trainer], ids=["torch", "jax"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_refused_update_leaves_the_optimizer_as_it_was(make: Callable, name: str) -> None:
    maker = MAKERS[name][0 if make is torch_trainer else 1]
    disturbed, clean = make(maker), make(maker)
    for step in range(4):
        rows = clean.feed.rows(step)
        clean.step(rows)
        disturbed.step(rows)
        if step == 1:
            disturbed.step({key: np.full_like(array, np.inf) for key, array in rows.items()})
    assert disturbed.metrics().skipped == 1
    one, other = bare(disturbed.export(["param"])), bare(clean.export(["param"]))
    assert all(one[key].tobytes() == other[key].tobytes() for key in other)


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(RuleError, match=r"torch\.optim\.Optimizer"):
        trainer = torch_trainer(lambda named: 3)
        trainer.step(trainer.feed.rows(0))
    with pytest.raises(RuleError, match="is in no group"):
        trainer = torch_trainer(lambda named: torch.optim.SGD(named[1:], lr=0.1))
        trainer.step(trainer.feed.rows(0))
    with pytest.raises(RuleError, match="GradientTransformation"):
        jax_trainer(lambda: 3)
    with pytest.raises(RuleError, match="runs eagerly"):
        torch_trainer(MAKERS["sgd"][0], mode="inductor")
    with pytest.raises(RuleError, match="stock"):
        jax_trainer(MAKERS["sgd"][1], mode="baseline:jit")


def test_edits_that_reach_both_still_do() -> None:
    edit = (Edit(name="clip_eps", value=0.5),)
    preset = torch_preset_side(PROBLEM, constants(PROBLEM))
    side = torch_impl.Side(preset.build, preset.loss, MAKERS["sgd"][0])
    edited = started(torch_impl.Trainer(PROBLEM, Execution(), "eager", edit, side=side), PROBLEM)
    plain = torch_trainer(MAKERS["sgd"][0])
    for trainer in (edited, plain):
        trainer.step(trainer.feed.rows(0))
    assert relative_difference(bare(edited.export(["param"])), bare(plain.export(["param"]))) > 1e-4


@pytest.mark.parametrize("name", MAKERS)
def test_updates_from_given_gradients_are_the_librarys(name: str) -> None:
    one, other = torch_trainer(MAKERS[name][0]), jax_trainer(MAKERS[name][1])
    before = bare(one.export(["param"]))
    generator = np.random.default_rng(0)
    gradients = [
        {key: generator.normal(size=array.shape).astype(np.float32) for key, array in before.items()}
        for _ in range(4)
    ]
    named = [(key, torch.nn.Parameter(torch.from_numpy(array.copy()))) for key, array in before.items()]
    optimizer = MAKERS[name][0](named)
    torchs = torch_updates(MAKERS[name][0], one.state, gradients)
    jaxs = jax_updates(MAKERS[name][1], other.state, gradients)
    for grads, a, b in zip(gradients, torchs, jaxs, strict=True):
        for key, parameter in named:
            parameter.grad = torch.from_numpy(grads[key])
        optimizer.step()
        expected = {key: parameter.detach().numpy() for key, parameter in named}
        assert relative_difference(a, expected) == 0.0
        assert relative_difference(dict(b), expected) < 2e-6
    assert bare(one.export(["param"])).keys() == before.keys()
    assert relative_difference(bare(one.export(["param"])), before) == 0.0
