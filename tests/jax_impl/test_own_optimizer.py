"""A user's own module, loss and optax transformation through the same trainer: the loop that users write."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from flax import nnx

from jax_impl.models import Side
from jax_impl.models.pair import load_side
from spec.errors import RuleError
from spec.run import AdamW, OwnOptimizer
from spec.workloads.pair import PairFiles
from tests.jax_impl.small import assert_equal_bits, make_trainer, mlp_problem

STEPS = 12


def module() -> nnx.Module:
    linear = partial(nnx.Linear, rngs=nnx.Rngs(3), param_dtype=np.float64)
    return nnx.Sequential(linear(4, 8), nnx.tanh, linear(8, 1))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    error = model(batch["x"]) - batch["y"]
    return (error**2).sum(), np.int32(error.size) + 0 * error.astype(int).sum()


def matrices(params):
    return jax.tree.map(lambda array: array.ndim > 1, params)


def rows(seed: int) -> dict[str, np.ndarray]:
    x_BI = np.random.default_rng(seed).standard_normal((8, 4))
    return {"x": x_BI, "y": x_BI[:, :1] * x_BI[:, 1:2]}


OPTIMIZERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "sgd": lambda: optax.sgd(1e-2, momentum=0.9, nesterov=True),
    "lion": lambda: optax.lion(1e-3, weight_decay=0.1),
    "scheduled_adamw": lambda: optax.adamw(optax.cosine_decay_schedule(1e-2, STEPS), mask=matrices),
    "adafactor": lambda: optax.adafactor(1e-2, min_dim_size_to_factor=2),
    "averaged": lambda: optax.chain(optax.trace(0.9), optax.ema(0.5), optax.scale(-1e-2)),
}


def problem(**changes):
    return mlp_problem(precision="f64", steps=STEPS, optimizer=AdamW(max_norm=None), **changes)


def by_hand(optimizer: optax.GradientTransformation) -> tuple[list[float], dict[str, np.ndarray]]:
    graph, state = nnx.split(module())
    params = {".".join(map(str, path)): leaf.get_value() for path, leaf in nnx.to_flat_state(state)}
    paths = {".".join(map(str, path)): path for path, _ in nnx.to_flat_state(state)}
    kept = optimizer.init(params)

    @jax.jit
    def update(params, kept, batch):
        def mean(params):
            model = nnx.merge(graph, nnx.from_flat_state([(paths[n], a) for n, a in params.items()]))
            loss_sum, count = loss(model, batch)
            return loss_sum / count

        value, grads = jax.value_and_grad(mean)(params)
        updates, kept = optimizer.update(grads, kept, params)
        return optax.apply_updates(params, updates), kept, value

    losses = []
    for step in range(STEPS):
        params, kept, value = update(params, kept, rows(step))
        losses.append(float(value))
    return losses, {name: np.asarray(array) for name, array in params.items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_trains_as_the_loop_that_users_write(jax_x64, name) -> None:
    trainer = make_trainer(problem(), side=Side(module, loss, OPTIMIZERS[name]))
    losses = []
    for step in range(STEPS):
        trainer.step(rows(step))
        losses.append(trainer.metrics().loss)
    expected, params = by_hand(OPTIMIZERS[name]())
    assert losses == pytest.approx(expected, rel=1e-9)
    found = trainer.export(["param"])
    for path, array in params.items():
        own = found["param/" + path.replace("kernel", "weight")]
        np.testing.assert_allclose(own.T if path.endswith("kernel") else own, array, rtol=1e-7, atol=1e-12)
    # It is one program like any other, its state updated in place, whatever it is.
    state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(trainer.state.train_state))
    assert trainer.compiled.proven["state_bytes_in_place"] == state_bytes
    assert np.isnan(trainer.metrics().lr) and trainer.applied == STEPS


def test_an_update_that_is_not_finite_changes_nothing_of_it(jax_x64) -> None:
    trainer = make_trainer(problem(), side=Side(module, loss, OPTIMIZERS["lion"]))
    trainer.step(rows(0))
    before = [np.array(leaf) for leaf in jax.tree.leaves(trainer.state.train_state.own)]
    params = trainer.export(["param"])
    bad = rows(1)
    bad["x"][0, 0] = np.nan
    trainer.step(bad)
    assert trainer.metrics().skipped == 1
    after = [np.array(leaf) for leaf in jax.tree.leaves(trainer.state.train_state.own)]
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
    assert_equal_bits(trainer.export(["param"]), params)


def test_several_steps_in_one_launch_work_too(jax_x64) -> None:
    side = Side(module, loss, OPTIMIZERS["sgd"])
    single, several = (make_trainer(problem(), mode, side=side) for mode in ("jit", "jit:k3"))
    for step in range(3):
        single.step(rows(step))
    several.steps([rows(step) for step in range(3)])
    assert several.metrics().loss == pytest.approx(single.metrics().loss, rel=1e-13)


def test_what_it_keeps_is_in_no_checkpoint(jax_x64) -> None:
    trainer = make_trainer(problem(), side=Side(module, loss, OPTIMIZERS["sgd"]))
    with pytest.raises(RuleError, match="built-in AdamW"):
        trainer.checkpoint()
    with pytest.raises(RuleError, match="stock"):
        make_trainer(problem(), "baseline:jit", side=Side(module, loss, OPTIMIZERS["sgd"]))


def test_classes_of_a_users_file_stay_one_over_the_jobs_of_a_process(tmp_path: Path) -> None:
    """An optimizer whose state is a class of the file itself: JAX compares classes, not their names."""
    file = tmp_path / "jax_side.py"
    file.write_text(
        "from typing import NamedTuple\n"
        "class State(NamedTuple):\n    count: int\n"
        "def build(): ...\ndef loss(model, batch): ...\ndef optimizer(): return State\n"
    )
    files = PairFiles(torch="none", jax=str(file))
    problem = mlp_problem(optimizer=OwnOptimizer())
    first, second = load_side(files, problem), load_side(files, problem)
    assert first.optimizer is not None and second.optimizer is not None
    assert first.optimizer() is second.optimizer()
    file.write_text(file.read_text() + "# changed\n")
    os.utime(file, ns=(1, 1))
    changed = load_side(files, problem).optimizer
    assert changed is not None and changed() is not first.optimizer(), "a changed file is read again"
