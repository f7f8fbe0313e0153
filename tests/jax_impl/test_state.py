"""States go out and come back bit for bit, transposed where they must be, and what does not fit is named."""

import numpy as np
import pytest

from spec.errors import RuleError
from tests.jax_impl.small import STATE, assert_equal_bits, gpt_problem, make_trainer, mlp_problem, train


@pytest.mark.parametrize("precision", ["f64", "strict", "bf16"])
def test_a_run_goes_on_from_its_exported_state(request, precision) -> None:
    if precision == "f64":
        request.getfixturevalue("jax_x64")
    whole, first, second = (make_trainer(mlp_problem(precision=precision)) for _ in range(3))
    train(whole, 4)
    train(first, 2)
    second.load(first.export(STATE) | {"meta/applied": np.array(first.applied)})
    train(second, 2, start=2)
    assert_equal_bits(second.export(STATE), whole.export(STATE))
    assert second.applied == 4


def test_an_export_does_not_follow_the_run() -> None:
    trainer = make_trainer(mlp_problem())
    exported = trainer.export(["param"])
    copy = {name: array.copy() for name, array in exported.items()}
    train(trainer, 1)
    assert_equal_bits(exported, copy)


def test_exports_are_canonical() -> None:
    problem = gpt_problem()
    exported = make_trainer(problem).export(["param"])
    assert {f"param/{row.name}": row.shape for row in problem.parameter_table()} == {
        name: array.shape for name, array in exported.items()
    }
    assert list(exported) == [f"param/{row.name}" for row in problem.parameter_table()]
    assert all(array.flags.c_contiguous for array in exported.values())


def test_affine_matrices_alone_lie_transposed() -> None:
    trainer = make_trainer(gpt_problem())
    held, exported = trainer.state.tensors("param"), trainer.export(["param"])
    for row in trainer.state.rows:
        array = np.asarray(held[row.name])
        turned = array.T if row.layout == "linear" else array
        np.testing.assert_array_equal(turned, exported[f"param/{row.name}"])
    square = exported["param/blocks.0.attn.proj.weight"]
    assert square.shape[0] == square.shape[1] and (square != square.T).any()


def test_counters_are_loaded() -> None:
    trainer = make_trainer(mlp_problem())
    trainer.load({"meta/applied": np.array(7), "meta/skipped": np.array([2])})
    train(trainer, 1)
    assert (trainer.applied, trainer.metrics().skipped) == (8, 2)
    assert trainer.metrics().lr == np.float32(mlp_problem().schedule.learning_rate(7))


def test_misfits_are_named() -> None:
    trainer = make_trainer(gpt_problem())
    state = trainer.export(["param"])
    missing = {name: array for name, array in state.items() if name != "param/ln_f.bias"}
    with pytest.raises(RuleError, match=r"param/ln_f\.bias is missing"):
        trainer.load(missing)
    with pytest.raises(RuleError, match=r"m/extra is not in the model"):
        trainer.load({**{f"m/{name[6:]}": array for name, array in state.items()}, "m/extra": np.zeros(1)})
    with pytest.raises(RuleError, match=r"param/ln_f\.bias is \(3,\), in the model \(16,\)"):
        trainer.load({**state, "param/ln_f.bias": np.zeros(3, np.float32)})
    turned = state["param/blocks.0.mlp.fc.weight"].T
    with pytest.raises(RuleError, match=r"fc\.weight is \(16, 64\), in the model \(64, 16\)"):
        trainer.load({**state, "param/blocks.0.mlp.fc.weight": turned})
