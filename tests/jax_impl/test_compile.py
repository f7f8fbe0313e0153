"""One program a step, compiled once; what it was proven to do; and the mode without a compiler."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from jax_impl.compile import compile_step
from jax_impl.runtime import compiler_options
from jax_impl.xla import compilations, program
from spec.errors import RuleError
from spec.precision import PROFILES
from tests.jax_impl.small import (
    STATE,
    assert_equal_bits,
    gpt_problem,
    make_trainer,
    mlp_problem,
    relative_difference,
    train,
)


def test_a_step_is_compiled_once_however_long_it_runs(monkeypatch) -> None:
    monkeypatch.setattr(program, "_built", {})
    trainer = make_trainer(mlp_problem())
    before = compilations.count("train_step")
    train(trainer, 4)
    trainer.load(trainer.export(STATE))
    train(trainer, 2)
    assert compilations.count("train_step") == before + 1
    proven = trainer.compiled.proven
    assert (proven["programs_compiled"], trainer.compiled.mode_ran) == (1, "jit")
    assert trainer.compiled.compile_s > 0


def test_the_next_trainer_of_a_process_takes_the_same_program() -> None:
    first, second, other = (make_trainer(mlp_problem(**c)) for c in ({}, {}, {"micro_batches": 2}))
    losses = [train(trainer, 2) for trainer in (first, second)]
    train(other, 1)
    assert first.compiled.step is second.compiled.step
    assert first.compiled.step is not other.compiled.step
    assert losses[0] == losses[1]
    assert first.compiled.compile_s == second.compiled.compile_s


def test_the_program_is_proven_to_work_in_place() -> None:
    trainer = make_trainer(mlp_problem(micro_batches=2))
    train(trainer, 1)
    proven = trainer.compiled.proven
    num_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(trainer.state.train_state))
    assert proven["state_bytes_in_place"] == proven["memory_bytes"]["in_place"] == num_bytes
    # One process: nothing to reduce.
    assert (proven["all_reduces"], proven["elements_reduced"]) == (0, 0)


def test_the_state_that_goes_in_is_used_up() -> None:
    trainer = make_trainer(mlp_problem())
    old = trainer.state.train_state
    train(trainer, 1)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(old))


def test_another_batch_is_an_error_and_no_second_program() -> None:
    trainer = make_trainer(mlp_problem())
    train(trainer, 1)
    rows = trainer.feed.rows(1)
    with pytest.raises(RuleError, match="of the first"):
        trainer.step({name: array[:4] for name, array in rows.items()})
    with compilations.apart():
        shorter = {name: array[:4] for name, array in trainer.stage(rows).items()}
    with pytest.raises(TypeError, match="types differ"):
        trainer.launch(shorter)


def test_looking_at_gradients_changes_nothing() -> None:
    """The observed step is another program: here it ends in the same state, to the bit."""
    looked, plain = make_trainer(mlp_problem()), make_trainer(mlp_problem())
    after = looked.look(looked.feed.rows(0))
    assert looked.num_steps == 0
    assert_equal_bits(looked.export(STATE), plain.export(STATE))
    train(looked, 1)
    train(plain, 1)
    assert_equal_bits(looked.export(STATE), plain.export(STATE))
    assert np.asarray(after.params[0]).tobytes() == np.asarray(looked.state.train_state.params[0]).tobytes()


@pytest.mark.parametrize(("precision", "tolerance"), [("f64", 1e-13), ("strict", 2e-6)])
def test_without_a_compiler_the_same_is_computed(request, precision, tolerance) -> None:
    """Fusion reorders sums and contracts products: some roundings a step, of 1e-16 or 6e-8."""
    if precision == "f64":
        request.getfixturevalue("jax_x64")
    problem = mlp_problem(precision=precision, micro_batches=2)
    jit, nojit = make_trainer(problem), make_trainer(problem, "nojit")
    before = compilations.count("train_step")
    losses = train(nojit, 3)
    assert compilations.count("train_step") == before
    assert losses == pytest.approx(train(jit, 3), rel=tolerance)
    assert relative_difference(nojit.export(STATE), jit.export(STATE)) < 20 * tolerance
    compiled = nojit.compiled
    assert (compiled.mode_ran, compiled.compile_s, compiled.proven) == ("nojit", None, None)
    assert set(compiled.reasons) == {"compile_s", "launch_us", "capture"}


def test_without_a_compiler_there_is_one_device() -> None:
    trainer = make_trainer(gpt_problem())
    trainer.state.ranks = replace(trainer.ranks, world_size=2)
    with pytest.raises(RuleError, match="one device"):
        compile_step(trainer._step, trainer.state, {}, "nojit", PROFILES["strict"])


def test_options_follow_the_precision_table() -> None:
    for profile in PROFILES.values():
        assert compiler_options(profile) == {"xla_allow_excess_precision": False}
