"""The graph behind the library's door and the worker's, and what a profiler counts of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spec.job import Job, Timing
from spec.presets import run_spec
from spec.run import Execution
from torch_impl.models import Side
from torch_impl.trainer import Trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match"),
]
ROOT = Path(__file__).resolve().parents[2]
CUDA = Execution(device="cuda")


def trainer_of(mode: str, name: str = "toy-mlp", side: Side | None = None) -> Trainer:
    problem = run_spec(name, steps=40, devices=1, execution=CUDA).problem
    return Trainer(problem, CUDA, mode, side=side)


def end_whole(trainer: Trainer) -> None:
    assert trainer.compiled is not None and trainer.compiled.whole is not None
    trainer.compiled.whole.close()


def test_a_trainer_in_mode_graph_trains_as_one_in_mode_eager() -> None:
    eager, graph = trainer_of("eager"), trainer_of("graph")
    seen: dict[str, list[Any]] = {"eager": [], "graph": []}
    for number in range(30):
        for trainer, metrics in ((eager, seen["eager"]), (graph, seen["graph"])):
            trainer.step(trainer.feed.rows(number))
            if number:
                metrics.append(trainer.metrics(number - 1))
    assert seen["graph"] == seen["eager"]
    state, other = (t.export(["param", "m", "v"]) for t in (graph, eager))
    assert all((state[key] == other[key]).all() for key in other)
    end_whole(graph)


def test_a_state_is_loaded_and_read_with_the_graph_live() -> None:
    one, other = trainer_of("graph"), trainer_of("graph")
    for number in range(5):
        one.step(one.feed.rows(number))
    other.step(other.feed.rows(9))
    counters = {
        "meta/applied": one.state.applied.cpu().numpy(),
        "meta/skipped": one.state.skipped.cpu().numpy(),
    }
    other.load(one.export(["param", "m", "v"]) | counters)
    for trainer in (one, other):
        for number in range(5, 10):
            trainer.step(trainer.feed.rows(number))
    state, expected = (t.export(["param", "m", "v"]) for t in (other, one))
    assert all((state[key] == expected[key]).all() for key in expected)
    end_whole(one)
    end_whole(other)


def test_what_cannot_be_captured_trains_eagerly_and_says_why() -> None:
    def waiting(module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        out = module(batch["x"])
        if out.abs().max() > 1e9:  # a question of the host's
            raise ValueError
        return (out - batch["y"]).square().sum(), torch.full((), out.numel(), device=out.device)

    side = Side(lambda: nn.Linear(32, 32), waiting)
    trainer = trainer_of("graph", side=side)
    for number in range(3):
        trainer.step(trainer.feed.rows(number))
    compiled = trainer.compiled
    assert compiled is not None and compiled.mode_ran == "eager" and compiled.whole is None
    assert "a question of the host's" in compiled.reasons["capture"]
    assert trainer.metrics().step == 2 and trainer.applied == 3


def test_the_worker_records_the_capture(tmp_path: Path) -> None:
    spec = run_spec("toy-mlp", steps=20, devices=1, execution=CUDA)
    paths = []
    for purpose in ("run", "time"):
        out = tmp_path / purpose
        timing = Timing(warmup_steps=3, windows=2, steps_per_window=5, calls=7)
        job = Job(
            side="torch", purpose=purpose, spec=spec, mode="graph", steps=20, out=str(out), timing=timing
        )
        paths.append(str(job.write()))
    command = [sys.executable, "-m", "torch_impl", "work", *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    logs = "".join(path.read_text() for path in tmp_path.rglob("log.*"))
    assert done.returncode == 0, done.stderr + logs
    for purpose in ("run", "time"):
        manifest = json.loads((tmp_path / purpose / "manifest.json").read_text())
        capture = json.loads((tmp_path / purpose / "capture.json").read_text())
        assert manifest["mode_ran"] == "graph" and (tmp_path / purpose / "capture.svg").exists()
        assert manifest["capture"]["plan"] == capture["plan"]
        assert capture["graphs"][0]["nodes_by_kind"].keys() == {"kernel"}
    rows = [json.loads(line) for line in (tmp_path / "time" / "windows.jsonl").read_text().splitlines()]
    assert sum(row["kind"] == "launch" for row in rows) == 7


def test_a_step_is_one_launch_and_the_device_runs_every_node() -> None:
    command = [sys.executable, "tests/gpu/launch_calls.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout.splitlines()[-1])
    work = {name: n for name, n in counted["calls"].items() if "Launch" in name or "Mem" in name}
    assert work == {"cudaGraphLaunch": 10}, counted
    assert counted["kernels"] == 10 * counted["nodes"]
