"""Run jobs that keep states, and lockstep jobs that start from them, again and again with noise."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jax_impl.__main__
import torch_impl.__main__
from spec import record
from spec.data.folder import batch_file
from spec.job import Job, Keep, Perturb, read_job
from spec.weights import load_tensors
from spec.worker.lockstep import RERUNS, STATES, states, taken
from tests.jax_impl.small import make_trainer as make_jax_trainer
from tests.torch_impl.small import gpt_problem, run_spec
from tests.torch_impl.small import make_trainer as make_torch_trainer

PROBLEM = gpt_problem(micro_batches=2)
MAIN = {"torch": torch_impl.__main__.main, "jax": jax_impl.__main__.main}
MAKE_TRAINER = {"torch": make_torch_trainer, "jax": make_jax_trainer}
MODE = {"torch": "eager", "jax": "jit"}


def job(side: str, out: Path, purpose: str, **changes: Any) -> Job:
    settings: dict[str, Any] = {
        "side": side,
        "purpose": purpose,
        "spec": run_spec(PROBLEM),
        "mode": MODE[side],
        "steps": 3,
        "out": str(out),
    }
    return Job(**settings | changes)


def lines(folder: Path) -> list[dict[str, Any]]:
    return list(record.read_lines(folder / "steps.rank0.jsonl"))


@pytest.fixture(scope="module", params=["torch", "jax"])
def passes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that keeps two states, and a lockstep pass from them with two reruns."""
    side, root = request.param, tmp_path_factory.mktemp("passes")
    run = job(side, root / "run", "run", keep_states=Keep(steps=(0, 2), dtype="float32"))
    lockstep = job(
        side,
        root / "lockstep",
        "lockstep",
        state=str(root / "run" / STATES),
        observe=tuple(f"{phase}@{step}" for phase in ("act", "grad", "param") for step in (0, 2)),
        perturb=Perturb(reruns=2, roundoff=2.0**-24),
    )
    assert MAIN[side](["work", *(str(each.write()) for each in (run, lockstep))]) == 0
    return root


def test_lockstep_goes_on_where_the_run_was(passes: Path) -> None:
    """Kept in the dtype of the master weights a state is the run's own, so the step is, to the bit."""
    run, lockstep = lines(passes / "run"), lines(passes / "lockstep")
    assert [line["step"] for line in lockstep] == [0, 2]
    for line in lockstep:
        for name in ("loss_bits", "grad_norm_bits", "lr_bits", "batch_digest"):
            assert line[name] == run[line["step"]][name]


def test_states_are_whole_and_count_updates(passes: Path) -> None:
    for step in (0, 2):
        state = load_tensors(batch_file(passes / "run" / STATES, step))
        assert {key.partition("/")[0] for key in state} == {"param", "m", "v", "meta"}
        assert int(state["meta/applied"]) == step
        assert {array.dtype for key, array in state.items() if key.startswith("param/")} == {
            np.dtype(np.float32)
        }


def test_a_rerun_moves_parameters_and_rows_and_nothing_else(passes: Path) -> None:
    job = read_job(passes / "lockstep" / "job.json")
    trainer = MAKE_TRAINER[job.side](PROBLEM)
    for rerun in range(2):
        folder = passes / "lockstep" / RERUNS / f"{rerun:02d}"
        for line, (step, state) in zip(lines(folder), states(job, rerun), strict=True):
            trainer.load(state)
            trainer.step(taken(job, trainer.feed.rows(step), step, rerun))
            assert record.from_bits(line["loss_bits"]) == trainer.metrics().loss
            found = load_tensors(batch_file(folder / "tensors", step))
            assert {"grad", "param", "act"} == {key.partition("/")[0] for key in found}


def test_reruns_differ_from_each_other_by_rounding(passes: Path) -> None:
    clean = load_tensors(batch_file(passes / "lockstep" / "tensors", 2))
    for rerun in range(2):
        noisy = load_tensors(batch_file(passes / "lockstep" / RERUNS / f"{rerun:02d}" / "tensors", 2))
        assert noisy.keys() == clean.keys()
        for key in ("grad/wte.weight", "act/ln_f"):
            distance = np.sqrt(np.mean((noisy[key] - clean[key]) ** 2)) / np.sqrt(np.mean(clean[key] ** 2))
            assert 0 < distance < 1e-5, (key, distance)
