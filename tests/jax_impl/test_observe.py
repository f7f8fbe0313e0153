"""What is observed of a user's model beside its steps, and what a mode without a compiler gives of it."""

import numpy as np
import pytest

from jax_impl.observe import activations, evaluation
from tests.jax_impl.small import make_trainer, mlp_problem, train
from tests.jax_impl.test_resume import side


def test_evaluation_takes_running_statistics_and_leaves_no_trace() -> None:
    trainer = make_trainer(mlp_problem(), side=side(0))
    train(trainer, 3)
    before, rows = trainer.export(("param", "buffer")), trainer.feed.rows(3)
    loss = evaluation(trainer, rows)["eval/loss"]
    after = trainer.export(("param", "buffer"))
    assert all(np.array_equal(before[key], after[key]) for key in before)
    held = {key.partition("/")[2]: array.astype(np.float64) for key, array in before.items()}
    h_BH = rows["x"] @ held["first.weight"].T + held["first.bias"]
    h_BH = (h_BH - held["norm.mean"]) / np.sqrt(held["norm.var"] + 1e-5)
    out_BO = (h_BH * held["norm.weight"] + held["norm.bias"]) @ held["last.weight"].T + held["last.bias"]
    assert loss == pytest.approx([np.mean(np.square(out_BO - rows["y"]))], rel=1e-5)


def test_a_model_without_running_statistics_is_not_evaluated() -> None:
    trainer = make_trainer(mlp_problem())
    assert evaluation(trainer, trainer.feed.rows(0)) == {}


def test_nojit_is_observed_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients and activations are those of jit but for rounding; nothing goes to XLA as a whole."""
    jit, nojit = (make_trainer(mlp_problem(), mode) for mode in ("jit", "nojit"))
    rows = jit.feed.rows(0)
    jit.look(rows)
    wanted = jit.export(("grad",)) | activations(jit, rows)
    monkeypatch.setattr("jax.jit", lambda *_, **__: pytest.fail("something was compiled as a whole"))
    nojit.look(rows)
    found = nojit.export(("grad",)) | activations(nojit, rows)
    assert found.keys() == wanted.keys()
    for key, array in wanted.items():
        assert np.allclose(found[key], array, rtol=1e-4, atol=1e-6), key
