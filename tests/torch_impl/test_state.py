"""States go out and come back bit for bit, and what does not fit is named."""

import numpy as np
import pytest

from spec.errors import RuleError
from tests.torch_impl.small import gpt_problem, make_trainer, train

STATE = ("param", "m", "v")


@pytest.mark.parametrize("precision", ["f64", "strict", "bf16"])
def test_a_run_goes_on_from_its_exported_state(precision) -> None:
    whole, first, second = (make_trainer(gpt_problem(precision=precision)) for _ in range(3))
    train(whole, 4)
    train(first, 2)
    second.load(first.export(STATE) | {"meta/applied": np.array(first.applied)})
    train(second, 2, start=2)
    expected, found = whole.export(STATE), second.export(STATE)
    assert expected.keys() == found.keys()
    assert all(found[name].tobytes() == array.tobytes() for name, array in expected.items())
    assert second.applied == 4


def test_an_export_does_not_follow_the_run() -> None:
    trainer = make_trainer(gpt_problem())
    exported = trainer.export(["param"])
    copy = {name: array.copy() for name, array in exported.items()}
    train(trainer, 1)
    assert all(np.array_equal(exported[name], array) for name, array in copy.items())


def test_exports_are_canonical() -> None:
    problem = gpt_problem()
    exported = make_trainer(problem).export(["param"])
    assert {f"param/{row.name}": row.shape for row in problem.parameter_table()} == {
        name: array.shape for name, array in exported.items()
    }
    assert list(exported) == [f"param/{row.name}" for row in problem.parameter_table()]


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
