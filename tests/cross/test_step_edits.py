"""Edits of the step that are more than a constant: both sides make the same of them, and what is meant."""

import numpy as np
import pytest
import torch

import torch_impl
from spec.edits import constants, parse
from spec.run import Execution
from spec.weights import init_parameters
from tests.jax_impl.small import bare, make_trainer, mlp_problem, relative_difference
from torch_impl.models import preset_side

LIMIT = 0.05
PROBLEM = mlp_problem(micro_batches=4, precision="f64")
EDIT = (parse("clip_parts=1"),)


def expected(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The mean over micro-batches of their clipped mean gradients; every micro-batch counts alike here."""
    side = preset_side(PROBLEM, constants(PROBLEM))
    module = side.build().to_empty(device="cpu").double()
    values = init_parameters(PROBLEM.parameter_table(), PROBLEM.seed_weights)
    for name, parameter in module.named_parameters():
        parameter.data = torch.from_numpy(values[name].astype(np.float64))
    total = {name: np.zeros(values[name].shape) for name in values}
    for part in range(4):
        batch = {
            name: torch.from_numpy(array[2 * part : 2 * part + 2]).double() for name, array in rows.items()
        }
        loss_sum, count = side.loss(module, batch)
        module.zero_grad()
        (loss_sum / count).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), LIMIT)
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None
            total[name] += parameter.grad.numpy() / 4
    return total


def gradients(trainer: torch_impl.Trainer) -> dict[str, np.ndarray]:
    """Those of the last step, by name."""
    return {key.removeprefix("grad/"): array for key, array in trainer.export(["grad"]).items()}


def test_both_sides_clip_each_micro_batch(jax_x64) -> None:
    torch_side = torch_impl.Trainer(PROBLEM, Execution(), "eager", EDIT)
    plain = torch_impl.Trainer(PROBLEM, Execution(), "eager")
    jax_side = make_trainer(PROBLEM, "jit", EDIT)
    rows = torch_side.feed.rows(0)
    wanted = expected(rows)
    for trainer in (torch_side, plain):
        trainer.step(rows)
    # torch's function adds 1e-6 to the norm.
    assert relative_difference(gradients(torch_side), wanted) < 1e-4
    assert relative_difference(gradients(plain), wanted) > 1e-2
    jax_side.step(rows)
    step = bare(torch_side.export(["param"]))
    assert relative_difference(bare(jax_side.export(["param"])), step) < 1e-12
    assert abs(jax_side.metrics().grad_norm / torch_side.metrics().grad_norm - 1) < 1e-12


@pytest.mark.parametrize("text", ["decay_tensor@fc1.bias=1", "decay_tensor@fc2.weight=0", "warmup_offset=1"])
def test_both_sides_make_the_same_edit(jax_x64, text: str) -> None:
    found, edit = {}, (parse(text),)
    for name, trainer in (
        ("plain", torch_impl.Trainer(PROBLEM, Execution(), "eager")),
        ("torch", torch_impl.Trainer(PROBLEM, Execution(), "eager", edit)),
        ("jax", make_trainer(PROBLEM, "jit", edit)),
    ):
        for step in range(2):
            trainer.step(trainer.feed.rows(step))
        found[name] = bare(trainer.export(["param"]))
    assert relative_difference(found["jax"], found["torch"]) < 1e-12
    changed = {
        name for name, array in found["torch"].items() if not np.array_equal(array, found["plain"][name])
    }
    _, _, target = text.partition("=")[0].partition("@")
    # What the second step differs by beyond the edited tensor follows from its first one.
    assert target in changed if target else changed == set(found["plain"])
