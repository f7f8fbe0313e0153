"""What is observed of a user's model beside its steps, and what a mode without a compiler gives of it."""

from pathlib import Path

import numpy as np
import pytest

from jax_impl.models.pair import load_side
from jax_impl.observe import activations, evaluation
from spec.workloads.pair import PairFiles
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


_LINEN = """
import jax
from flax import linen, nnx
from flax.nnx import bridge

class Block(linen.Module):
    @linen.compact
    def __call__(self, x):
        norm, twice = linen.BatchNorm(False), linen.Dense(7, name="twice")
        return twice(twice(norm(linen.Dense(7, name="first")(x))))

class Model(linen.Module):
    @linen.compact
    def __call__(self, x):
        states = linen.RNN(linen.OptimizedLSTMCell(4), name="loop")(Block(name="block")(x)[:, None])
        return linen.Dense(3, name="last")(states[:, -1])

class Mixed(nnx.Module):
    def __init__(self):
        self.part = bridge.ToNNX(Model(), rngs=nnx.Rngs(0)).lazy_init(jax.numpy.ones((1, 5)))
        self.part.to_nnx__rngs = None
        self.head = nnx.Linear(3, 3, rngs=nnx.Rngs(1))

    def __call__(self, x, **options):
        return self.head(self.part(x, **options))

def loss(model, batch):
    error = model(batch["x"], mutable=["batch_stats"]) - batch["y"]
    return (error * error).sum(), error.size
"""
_OF_LINEN = ["block", "block.BatchNorm_0", "block.first", "block.twice", "block.twice#2", "last", "loop"]


@pytest.mark.parametrize(
    ("built", "names"),
    [
        ("Model()", [*_OF_LINEN, "output"]),
        ("Mixed()", ["head", "output", "part", *(f"part.{name}" for name in _OF_LINEN)]),
    ],
)
def test_parts_of_linen_modules_are_observed_too(tmp_path: Path, built: str, names: list[str]) -> None:
    """All but those inside a loop, whose many outputs are not there after it; and nothing of it is kept."""
    file = tmp_path / "jax_side.py"
    file.write_text(f"{_LINEN}\ndef build():\n    return {built}\n")
    problem = mlp_problem()
    trainer = make_trainer(problem, side=load_side(PairFiles(torch="", jax=str(file)), problem))
    before, rows = trainer.export(("param", "buffer")), trainer.feed.rows(0)
    found = activations(trainer, rows)
    assert sorted(found) == [f"act/{name}" for name in names]
    after = trainer.export(("param", "buffer"))
    assert before.keys() == after.keys() and all(np.array_equal(before[key], after[key]) for key in before)
    prefix = "" if built == "Model()" else "part."
    held = {key: array.astype(np.float64) for key, array in before.items()}
    first = rows["x"] @ held[f"param/{prefix}block.first.weight"].T + held[f"param/{prefix}block.first.bias"]
    np.testing.assert_allclose(found[f"act/{prefix}block.first"], first, rtol=1e-5, atol=1e-6)
    train(trainer, 1)
