"""What is observed of a user's model beside its steps."""

import numpy as np
import pytest

from tests.torch_impl.small import make_trainer, mlp_problem, train
from tests.torch_impl.test_resume import side
from torch_impl.observe import evaluation


def test_evaluation_takes_running_statistics_and_leaves_no_trace() -> None:
    trainer = make_trainer(mlp_problem(), side=side())
    train(trainer, 3)
    before, rows = trainer.export(("param", "buffer")), trainer.feed.rows(3)
    loss = evaluation(trainer, rows)["eval/loss"]
    after = trainer.export(("param", "buffer"))
    assert all(np.array_equal(before[key], after[key]) for key in before)
    assert all(part.training for part in trainer.state.module.modules())
    held = {key.partition("/")[2]: array.astype(np.float64) for key, array in before.items()}
    h_BH = rows["x"] @ held["0.weight"].T + held["0.bias"]
    h_BH = (h_BH - held["1.running_mean"]) / np.sqrt(held["1.running_var"] + 1e-5)
    out_BO = (h_BH * held["1.weight"] + held["1.bias"]) @ held["3.weight"].T + held["3.bias"]
    assert loss == pytest.approx([np.mean(np.square(out_BO - rows["y"]))], rel=1e-5)


def test_a_model_without_running_statistics_is_not_evaluated() -> None:
    trainer = make_trainer(mlp_problem())
    assert evaluation(trainer, trainer.feed.rows(0)) == {}
