"""The whole step against NumPy and optax; refusal of updates; sums over micro-batches.

Float64 tests allow 1e-12 of a tensor's RMS over 30 steps: each step adds a few roundings of 1e-16.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spec.edits import Edit
from spec.run import AdamW
from tests.jax_impl.small import (
    GPT,
    STATE,
    assert_equal_bits,
    bare,
    gpt_problem,
    make_trainer,
    mlp_problem,
    relative_difference,
    train,
    without_key_bias,
)
from tests.torch_impl.references import adamw_in_numpy, mlp_loss_and_gradients


def test_thirty_steps_are_the_formula(jax_x64) -> None:
    """Forward, backward, clipping (at every step), schedule and AdamW, all again in NumPy float64."""
    problem = mlp_problem(precision="f64")
    trainer = make_trainer(problem)
    weights = bare(trainer.export(["param"]))
    m = {name: np.zeros_like(values) for name, values in weights.items()}
    v = {name: np.zeros_like(values) for name, values in weights.items()}
    for step in range(problem.steps):
        rows = trainer.feed.rows(step)
        trainer.step(rows)
        found = trainer.metrics()

        loss_sum, gradients = mlp_loss_and_gradients(weights, *(rows[k].astype(np.float64) for k in "xy"))
        gradients = {name: gradient / rows["y"].size for name, gradient in gradients.items()}
        norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients.values()))
        lr = float(np.float32(problem.schedule.learning_rate(step)))
        clip = min(1.0, problem.optimizer.max_norm / norm)
        assert clip < 1
        for name, gradient in gradients.items():
            weights[name], m[name], v[name] = adamw_in_numpy(
                weights[name],
                clip * gradient,
                m[name],
                v[name],
                lr,
                step + 1,
                problem.optimizer,
                decayed=weights[name].ndim == 2,
            )
        assert found.loss == pytest.approx(loss_sum / rows["y"].size, rel=1e-12)
        assert found.grad_norm == pytest.approx(norm, rel=1e-12)
        assert (found.lr, found.skipped, found.tokens, found.step) == (lr, 0, rows["y"].size, step)
    end = trainer.export(STATE)
    for phase, expected in (("param", weights), ("m", m), ("v", v)):
        assert relative_difference(bare(end, phase), expected) < 1e-12
    assert trainer.applied == problem.steps


def test_thirty_steps_are_optaxs(jax_x64) -> None:
    """optax's clipping has no epsilon, and its AdamW is ours in float64."""
    problem = gpt_problem(precision="f64", steps=30)
    trainer = make_trainer(problem)
    # A copy: the trainer's own arrays are used up by its steps.
    params = jax.tree.map(jnp.array, trainer.state.tensors("param"))
    rates = jnp.asarray([float(np.float32(problem.schedule.learning_rate(t))) for t in range(30)])
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(
            lambda t: rates[t],
            b2=0.95,
            weight_decay=0.1,
            mask={row.name: row.decayed for row in trainer.state.rows},
        ),
    )
    state = optimizer.init(params)

    @jax.jit
    def update(params, state, batch):
        def mean_loss(params):
            loss_sum, count = trainer.side.loss(trainer.state.module(params, {}), batch)
            return loss_sum / count

        updates, state = optimizer.update(jax.grad(mean_loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    for step in range(problem.steps):
        rows = trainer.feed.rows(step)
        trainer.step(rows)
        params, state = update(params, state, rows)
    found = without_key_bias({name: np.asarray(a) for name, a in trainer.state.tensors("param").items()})
    expected = without_key_bias({name: np.asarray(a) for name, a in params.items()})
    assert relative_difference(found, expected) < 1e-12


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_update_that_is_not_finite_is_refused(bad) -> None:
    """Nothing changes but the count of refusals, and the next step goes on as if it had not been."""
    trainer, undisturbed = make_trainer(mlp_problem()), make_trainer(mlp_problem())
    train(trainer, 3)
    train(undisturbed, 3)
    before = trainer.export(STATE)
    rows = {name: array.copy() for name, array in trainer.feed.rows(3).items()}
    rows["x"][0, 0] = bad
    trainer.step(rows)
    metrics = trainer.metrics()
    assert not np.isfinite(metrics.loss)
    assert (metrics.skipped, trainer.applied) == (1, 3)
    assert_equal_bits(trainer.export(STATE), before)

    trainer.step(trainer.feed.rows(4))
    undisturbed.step(undisturbed.feed.rows(4))
    assert trainer.metrics().lr == undisturbed.metrics().lr
    assert trainer.metrics().skipped == 1
    assert_equal_bits(trainer.export(STATE), undisturbed.export(STATE))


def test_a_batch_without_labels_is_refused() -> None:
    trainer = make_trainer(gpt_problem())
    before = trainer.export(STATE)
    rows = trainer.feed.rows(0)
    trainer.step({**rows, "labels": np.full_like(rows["labels"], -1)})
    assert (trainer.metrics().skipped, trainer.metrics().tokens) == (1, 0)
    assert_equal_bits(trainer.export(STATE), before)


@pytest.mark.parametrize(("precision", "tolerance"), [("f64", 1e-14), ("strict", 1e-6)])
def test_micro_batches_add_up(request, precision, tolerance) -> None:
    """Four slices of two ragged rows are one of eight: sums of sums, divided once."""
    if precision == "f64":
        request.getfixturevalue("jax_x64")
    whole = make_trainer(gpt_problem(precision=precision))
    sliced = make_trainer(gpt_problem(precision=precision, micro_batches=4))
    losses = train(whole, 1), train(sliced, 1)
    assert losses[0] == pytest.approx(losses[1], rel=tolerance)
    assert whole.metrics().tokens == sliced.metrics().tokens < 8 * GPT.seq_len
    # After one step the first moment is the gradient, scaled.
    found, expected = (without_key_bias(trainer.export(["m"])) for trainer in (sliced, whole))
    assert relative_difference(found, expected) < tolerance


def test_the_mean_of_means_would_be_seen(jax_x64) -> None:
    """The rows really are ragged: slices have different counts, so a mean of their means is another loss."""
    trainer = make_trainer(gpt_problem(precision="f64"))
    rows, arena = trainer.feed.rows(0), trainer.state
    sums, counts = [], []
    for k in range(4):
        part = {name: jnp.asarray(array[2 * k : 2 * k + 2]) for name, array in rows.items()}
        loss_sum, count = trainer.side.loss(arena.module(arena.tensors("param"), {}), part)
        sums.append(float(loss_sum))
        counts.append(int(count))
    trainer.step(rows)
    assert trainer.metrics().loss == pytest.approx(sum(sums) / sum(counts), rel=1e-14)
    assert abs(np.mean(np.divide(sums, counts)) - sum(sums) / sum(counts)) > 1e-6


def test_clipped_gradient_is_the_gradient_times_the_coefficient() -> None:
    trainer = make_trainer(mlp_problem())
    trainer.look(trainer.feed.rows(0))
    train(trainer, 1)
    tensors = trainer.export(["grad", "clipped"])
    clip = np.float32(0.05) / np.float32(trainer.metrics().grad_norm)
    for name in bare(tensors, "grad"):
        # XLA may fold the product into what follows it: one rounding.
        np.testing.assert_allclose(tensors[f"clipped/{name}"], tensors[f"grad/{name}"] * clip, rtol=1.2e-7)


def test_without_clipping_nothing_is_scaled() -> None:
    trainer = make_trainer(mlp_problem(optimizer=AdamW(max_norm=None)))
    trainer.look(trainer.feed.rows(0))
    tensors = trainer.export(["grad", "clipped"])
    for name in bare(tensors, "grad"):
        np.testing.assert_array_equal(tensors[f"clipped/{name}"], tensors[f"grad/{name}"])


@pytest.mark.parametrize(
    ("edit", "is_seen"),
    [
        (Edit(name="clip_eps", value=1e-3), lambda one, other: one["m"] != other["m"]),
        (Edit(name="adam_eps", value=1e-3), lambda one, other: one["param"] != other["param"]),
        (Edit(name="weight_decay", value=0.5), lambda one, other: one["param"] != other["param"]),
        (Edit(name="schedule_offset", value=1), lambda one, other: one["lr"] != other["lr"]),
        (Edit(name="loss_scale", value=2.0), lambda one, other: one["loss"] == 2 * other["loss"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_edit_of_the_step_is_seen(edit, is_seen) -> None:
    results = []
    for edits in ([edit], []):
        trainer = make_trainer(mlp_problem(), edits=edits)
        train(trainer, 1)
        end = trainer.export(["param", "m"])
        results.append(
            {phase: end[f"{phase}/fc1.weight"].tobytes() for phase in ("param", "m")}
            | {"lr": trainer.metrics().lr, "loss": trainer.metrics().loss}
        )
    assert is_seen(*results)


def test_the_table_s_last_row_lasts() -> None:
    problem = mlp_problem(steps=3)
    trainer = make_trainer(problem)
    train(trainer, 5)
    assert trainer.metrics().lr == np.float32(problem.schedule.learning_rate(2))
    assert trainer.applied == 5
