"""The state that timed steps begin with: put back after warm-up, and told when it is not."""

import dataclasses
from pathlib import Path

import numpy as np

from spec.job import Job
from spec.own_optimizer import OwnOptimizer
from spec.presets import run_spec
from spec.worker.start import Start


class Trainer:
    """One parameter that every step moves; `forgets` loads nothing."""

    def __init__(self, forgets: bool = False) -> None:
        self.weights, self.applied, self._forgets = np.ones(3, np.float32), 0, forgets

    def step(self) -> None:
        self.weights, self.applied = self.weights + 1, self.applied + 1

    def export(self, phases):
        return {"param/w": self.weights.copy()}

    def load(self, tensors) -> None:
        if not self._forgets:
            self.weights, self.applied = tensors["param/w"], int(tensors["meta/applied"])


def job(folder: Path, own: bool = False) -> Job:
    spec = run_spec("toy-mlp", steps=3)
    if own:
        spec = dataclasses.replace(spec, problem=dataclasses.replace(spec.problem, optimizer=OwnOptimizer()))
    return Job(side="torch", purpose="time", spec=spec, mode="eager", steps=3, out=str(folder))


def begun(trainer: Trainer, asked: Job) -> dict:
    start = Start(asked, trainer)
    trainer.step()
    return start.put_back()


def test_what_warm_up_changed_is_put_back(tmp_path: Path) -> None:
    trainer = Trainer()
    assert begun(trainer, job(tmp_path)) == {"kind": "start", "initial": True, "reason": None}
    assert (trainer.weights.tolist(), trainer.applied) == ([1, 1, 1], 0)


def test_a_state_that_stays_changed_is_told(tmp_path: Path) -> None:
    assert begun(Trainer(forgets=True), job(tmp_path))["initial"] is False


def test_an_optimizer_of_ones_own_is_not_put_back_and_it_is_said(tmp_path: Path) -> None:
    trainer = Trainer()
    assert begun(trainer, job(tmp_path, own=True))["initial"] is None
    assert trainer.applied == 1
