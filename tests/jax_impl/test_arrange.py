"""Recomputing layers and looping over them: the same step to rounding, less memory, a smaller program."""

import pytest

from spec.errors import RuleError
from spec.workloads.gpt import GptSizes
from tests.jax_impl.small import (
    STATE,
    gpt_problem,
    make_trainer,
    mlp_problem,
    relative_difference,
    train,
    without_key_bias,
)

DEEP = GptSizes(vocab=61, seq_len=32, num_layers=3, d_model=16, num_heads=2)


def problem(**changes):
    return gpt_problem(sizes=DEEP, precision="f64", **changes)


@pytest.mark.parametrize("mode", ["jit:remat", "jit:scan", "jit:remat+scan+k3"])
def test_it_is_the_same_step(jax_x64, mode) -> None:
    plain = make_trainer(problem())
    expected = train(plain, 3)
    trainer = make_trainer(problem(), mode)
    if trainer.steps_per_launch == 3:
        trainer.steps([trainer.feed.rows(step) for step in range(3)])
        losses = [trainer.metrics(step).loss for step in range(3)]
    else:
        losses = train(trainer, 3)
    assert losses == pytest.approx(expected, rel=1e-13)
    found, truth = (without_key_bias(each.export(STATE)) for each in (trainer, plain))
    assert relative_difference(found, truth) < 1e-10


def test_recomputing_keeps_less_and_looping_makes_a_smaller_program(jax_x64) -> None:
    memory, size = {}, {}
    for mode in ("jit", "jit:remat+scan", "jit:scan"):
        trainer = make_trainer(problem(), mode)
        train(trainer, 1)
        memory[mode] = trainer.compiled.proven["memory_bytes"]["temporary"]
        size[mode] = trainer.compiled.step.as_text().count("\n")
    assert memory["jit:remat+scan"] < memory["jit:scan"]
    assert size["jit:scan"] < size["jit"]


def test_a_module_that_cannot_be_told_is_named() -> None:
    with pytest.raises(RuleError, match="layer by layer") as caught:
        make_trainer(mlp_problem(), "jit:remat")
    assert "Mlp has no method" in caught.value.numbers
