"""What must hold at the first steps, each shown by a fault that is planted; errors name the leaf."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_impl.compile import compile_step
from jax_impl.memory import prove_in_place
from jax_impl.xla import compilations, program
from jax_impl.xla.first_steps import FirstSteps, refuse_elsewhere
from spec.errors import RuleError
from spec.precision import PROFILES
from tests.jax_impl.processes import ROOT, run_group
from tests.jax_impl.small import make_trainer, mlp_problem, train


def test_a_clean_run_passes_all_of_them() -> None:
    trainer = make_trainer(mlp_problem())
    train(trainer, 2)
    trainer.look(trainer.feed.rows(2))
    trainer.export(["param"])
    assert len(train(trainer, 2, start=2)) == 2


def test_one_buffer_under_two_names_is_refused_before_it_is_given_away() -> None:
    trainer = make_trainer(mlp_problem())
    state = trainer.state.train_state
    trainer.state.train_state = replace(state, m=state.v)
    with pytest.raises(RuleError, match="memory of its own") as caught:
        train(trainer, 1)
    assert "m/0 and v/0 are one buffer" in caught.value.numbers
    # Nothing was lost: the state can still be read.
    assert np.isfinite(trainer.export(["param"])["param/fc1.weight"]).all()


def test_work_between_the_first_steps_of_a_worker_is_named() -> None:
    trainer = make_trainer(mlp_problem())
    trainer.first_steps.alone = True
    train(trainer, 1)

    @jax.jit
    def running_mean(row):
        return row * 0.9

    running_mean(jnp.asarray(np.ones(7, np.float32)))
    with pytest.raises(RuleError, match="nothing else is computed") as caught:
        train(trainer, 1, start=1)
    assert "running_mean" in caught.value.numbers


def test_work_before_the_first_step_and_after_the_second_is_the_users() -> None:
    trainer = make_trainer(mlp_problem())
    jax.jit(lambda row: row * 3)(np.ones(5))
    trainer.first_steps.alone = True
    train(trainer, 2)
    jax.jit(lambda row: row * 4)(np.ones(5))
    train(trainer, 1, start=2)


def test_a_leaf_that_left_the_device_is_named() -> None:
    """Two devices need a process that was started with two."""
    code = """
import jax
from jax.sharding import Mesh
from jax_impl.xla.first_steps import FirstSteps
from spec.errors import RuleError
here, there = jax.devices()
checks = FirstSteps(Mesh([here], ("data",)))
state = {"m": {"fc1.weight": jax.device_put(1.0, here), "fc1.bias": jax.device_put(1.0, there)}}
try:
    checks.after(state)
except RuleError as error:
    print(error.message())
"""
    ((status, output),) = run_group(
        ["-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"], 1, environ=two()
    )
    assert status == 0 and "m/fc1.bias lies on" in output, output


def two() -> dict[str, str]:
    """An environment of two devices in one process."""
    import os

    return os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}


def test_a_step_that_becomes_two_programs_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(program, "_built", {})
    trainer, made = make_trainer(mlp_problem()), compilations.count

    def count_twice(function: str) -> int:
        return 2 * made(function)

    monkeypatch.setattr(program.compilations, "count", count_twice)
    with pytest.raises(RuleError, match="compiled once") as caught:
        train(trainer, 1)
    assert caught.value.numbers.startswith("2 programs")


def test_a_leaf_that_comes_back_otherwise_is_named() -> None:
    """bfloat16 minus a float32 array is float32: the next step would be another program, without a word."""
    trainer = make_trainer(mlp_problem())
    step = trainer._step

    def drifting(state, batch):
        new, metrics, seen = step(state, batch)
        return replace(new, m=tuple(piece.astype(jnp.float16) for piece in new.m)), metrics, seen

    with pytest.raises(RuleError, match="gives its state back") as caught:
        compile_step(drifting, trainer.state, trainer.stage(trainer.feed.rows(0)), "jit", PROFILES["strict"])
    assert "m/0: in float32" in caught.value.numbers and "out float16" in caught.value.numbers


def test_a_state_that_is_copied_is_named() -> None:
    trainer = make_trainer(mlp_problem())
    batch = trainer.stage(trainer.feed.rows(0))
    state = trainer.state.train_state
    kept = jax.jit(lambda state, batch: trainer._step(state, batch)[:2], keep_unused=True)
    with pytest.raises(RuleError, match="in place") as caught:
        prove_in_place(kept.lower(state, batch).compile(), state)
    assert caught.value.numbers.startswith("0 of ") and "copied: params/0, m/0, v/0" in caught.value.numbers


def test_checks_end_with_the_second_step() -> None:
    checks, mesh_of = FirstSteps(make_trainer(mlp_problem()).ranks.mesh), make_trainer(mlp_problem())
    state = mesh_of.state.train_state
    for _ in range(2):
        checks.before(state)
        checks.after(state)
    compilations._order.append("planted")
    checks.before(state)
    refuse_elsewhere(state, set(mesh_of.ranks.mesh.devices.flat))
