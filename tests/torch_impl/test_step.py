"""The whole step against NumPy and torch's own optimizer; refusal of updates; sums over micro-batches.

Float64 tests allow 1e-12 of a tensor's RMS over 30 steps: each step adds a few roundings of 1e-16.
"""

import numpy as np
import pytest
import torch

from spec.edits import Edit
from spec.run import AdamW
from tests.torch_impl.references import adamw_in_numpy, mlp_loss_and_gradients
from tests.torch_impl.small import GPT, gpt_problem, make_trainer, mlp_problem, relative_difference, train
from torch_impl.models import Side

STATE = ("param", "m", "v")


def _bare(tensors, phase="param"):
    prefix = f"{phase}/"
    return {key.removeprefix(prefix): array for key, array in tensors.items() if key.startswith(prefix)}


def test_thirty_steps_are_the_formula() -> None:
    """Forward, backward, clipping (at every step), schedule and AdamW, all again in NumPy float64."""
    problem = mlp_problem(precision="f64")
    trainer = make_trainer(problem)
    weights = _bare(trainer.export(["param"]))
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
        assert relative_difference(_bare(end, phase), expected) < 1e-12
    assert trainer.applied == problem.steps


def test_thirty_steps_are_torchs_adamw_and_clipping() -> None:
    """`clip_grad_norm_` divides by norm + 1e-6, which is an edit of ours; the rest is the same in float64."""
    problem = gpt_problem(precision="f64", steps=30)
    trainer = make_trainer(problem, edits=[Edit(name="clip_eps", value=1e-6)])
    other = make_trainer(problem).state.module
    decayed = [parameter for parameter in other.parameters() if parameter.ndim >= 2]
    plain = [parameter for parameter in other.parameters() if parameter.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    for step in range(problem.steps):
        rows = trainer.feed.rows(step)
        trainer.step(rows)
        for group in optimizer.param_groups:
            group["lr"] = float(np.float32(problem.schedule.learning_rate(step)))
        optimizer.zero_grad()
        loss_sum, count = trainer.side.loss(other, {k: torch.from_numpy(a) for k, a in rows.items()})
        (loss_sum / count).backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        optimizer.step()
    expected = {name: parameter.detach().numpy() for name, parameter in other.named_parameters()}
    # The keys' bias has a zero gradient; Adam divides its rounding by its own size.
    found = _bare(trainer.export(["param"]))
    for tensors in (found, expected):
        for name in tensors:
            if name.endswith("qkv.bias"):
                tensors[name] = np.delete(tensors[name], slice(GPT.d_model, 2 * GPT.d_model))
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
    _assert_equal_bits(trainer.export(STATE), before)

    trainer.step(trainer.feed.rows(4))
    undisturbed.step(undisturbed.feed.rows(4))
    assert trainer.metrics().lr == undisturbed.metrics().lr
    assert trainer.metrics().skipped == 1
    _assert_equal_bits(trainer.export(STATE), undisturbed.export(STATE))


@pytest.mark.parametrize(
    ("factor", "offset"), [(1e25, 0.0), (1.0, np.inf)], ids=["norm overflows", "loss is infinite"]
)
def test_loss_and_norm_must_both_be_finite(factor, offset) -> None:
    """In float32 the square of 1e25 is infinite, though the loss and every gradient are not."""

    def loss(module, batch):
        return module(batch["x"]).sum() * factor + offset, torch.full((), 4)

    trainer = make_trainer(mlp_problem(), side=Side(lambda: torch.nn.Linear(3, 1), loss))
    before = trainer.export(STATE)
    trainer.step({"x": np.ones((4, 3), np.float32)})
    metrics = trainer.metrics()
    assert np.isfinite(metrics.loss) == (offset == 0)
    assert np.isfinite(metrics.grad_norm) == (offset != 0)
    assert metrics.skipped == 1
    _assert_equal_bits(trainer.export(STATE), before)


def test_a_batch_without_labels_is_refused() -> None:
    trainer = make_trainer(gpt_problem())
    before = trainer.export(STATE)
    rows = trainer.feed.rows(0)
    trainer.step({**rows, "labels": np.full_like(rows["labels"], -1)})
    assert (trainer.metrics().skipped, trainer.metrics().tokens) == (1, 0)
    _assert_equal_bits(trainer.export(STATE), before)


def _assert_equal_bits(found, expected) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize(("precision", "tolerance"), [("f64", 1e-14), ("strict", 1e-6)])
def test_micro_batches_add_up(precision, tolerance) -> None:
    """Four slices of two ragged rows are one of eight: sums of sums, divided once."""
    whole = make_trainer(gpt_problem(precision=precision))
    sliced = make_trainer(gpt_problem(precision=precision, micro_batches=4))
    losses = train(whole, 1), train(sliced, 1)
    assert losses[0] == pytest.approx(losses[1], rel=tolerance)
    assert whole.metrics().tokens == sliced.metrics().tokens < 8 * GPT.seq_len
    assert relative_difference(sliced.export(["grad"]), whole.export(["grad"])) < tolerance


def test_the_mean_of_means_would_be_seen() -> None:
    """The rows really are ragged: slices have different counts, so a mean of their means is another loss."""
    trainer = make_trainer(gpt_problem(precision="f64"))
    rows = trainer.feed.rows(0)
    sums, counts = [], []
    for k in range(4):
        part = {name: torch.from_numpy(array[2 * k : 2 * k + 2]) for name, array in rows.items()}
        loss_sum, count = trainer.side.loss(trainer.state.module, part)
        sums.append(loss_sum.item())
        counts.append(count.item())
    trainer.step(rows)
    assert trainer.metrics().loss == pytest.approx(sum(sums) / sum(counts), rel=1e-14)
    assert abs(np.mean(np.divide(sums, counts)) - sum(sums) / sum(counts)) > 1e-6


def test_clipped_gradient_is_the_gradient_times_the_coefficient() -> None:
    trainer = make_trainer(mlp_problem())
    train(trainer, 1)
    tensors = trainer.export(["grad", "clipped"])
    clip = np.float32(0.05) / np.float32(trainer.metrics().grad_norm)
    for name in _bare(tensors, "grad"):
        np.testing.assert_array_equal(tensors[f"clipped/{name}"], tensors[f"grad/{name}"] * clip)


def test_without_clipping_nothing_is_scaled() -> None:
    trainer = make_trainer(mlp_problem(optimizer=AdamW(max_norm=None)))
    train(trainer, 1)
    tensors = trainer.export(["grad", "clipped"])
    for name in _bare(tensors, "grad"):
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
