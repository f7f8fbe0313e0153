"""Going on from a checkpoint with a captured step alive: in place, every address kept, equal to the bit."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from spec import record
from spec.checkpoint import Checkpoint, Saver, open_checkpoint
from spec.job import Job
from spec.presets import run_spec
from spec.run import Execution, RunSpec
from tests.gpu.steps import conv_rows, conv_side
from torch_impl.trainer import Trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match"),
]
ROOT = Path(__file__).resolve().parents[2]
CUDA = Execution(device="cuda")
STATE = ("param", "m", "v", "buffer")


def spec_of(name: str = "toy-mlp", devices: int = 1) -> RunSpec:
    return run_spec(name, steps=40, devices=devices, execution=CUDA)


def preset_trainer(mode: str) -> tuple[Trainer, Any]:
    """A trainer of the strict preset, and its rows by step."""
    trainer = Trainer(spec_of().problem, CUDA, mode)
    return trainer, trainer.feed.rows


def conv_trainer(mode: str) -> tuple[Trainer, Any]:
    """A user's convolutions with running statistics and dropout from torch's generator."""
    return Trainer(spec_of().problem, CUDA, mode, side=conv_side(0.3, nn.Dropout)), conv_rows


def losses(trainer: Trainer, rows: Any, numbers: range) -> list[tuple[float, float]]:
    """(loss, gradient norm) of steps, to the bit."""
    found = []
    for number in numbers:
        trainer.step(rows(number))
        metrics = trainer.metrics()
        found.append((metrics.loss, metrics.grad_norm))
    return found


def saved(trainer: Trainer, folder: Path) -> Checkpoint:
    saver = Saver(folder)
    saver.save(spec_of(), *trainer.checkpoint(), {"side": "torch", "plan": None})
    saver.close()
    return open_checkpoint(folder / f"step{trainer.next_step:06d}")


def end(*trainers: Trainer) -> None:
    for trainer in trainers:
        if trainer.compiled is not None and trainer.compiled.whole is not None:
            trainer.compiled.whole.close()


@pytest.mark.parametrize("make", [preset_trainer, conv_trainer])
@pytest.mark.parametrize(
    ("writer", "reader"), [("graph", "graph"), ("graph+inductor", "graph+inductor"), ("eager", "graph")]
)
def test_a_live_graph_goes_on_in_place_and_to_the_bit(
    tmp_path: Path, make: Any, writer: str, reader: str
) -> None:
    if make is conv_trainer and (writer, reader) != ("graph", "graph"):
        pytest.skip("dropout of torch's generator: eager, inductor and replay draw in orders of their own")
    whole, rows = make(writer)
    losses(whole, rows, range(5))
    checkpoint = saved(whole, tmp_path)
    expected = losses(whole, rows, range(5, 12))

    other, _ = make(reader)
    losses(other, rows, range(20, 23))
    compiled = other.compiled
    assert compiled is not None and compiled.whole is not None, "the graph is alive before the resume"
    before = dict(compiled.whole.ledger.entries)
    other.resume(checkpoint)
    compiled.whole.ledger.check()
    assert compiled.whole.ledger.entries == before and compiled.whole.ledger.moved() == []
    assert (other.next_step, other.applied) == (5, 5)

    assert losses(other, rows, range(5, 12)) == expected
    assert other.compiled is compiled, "nothing was captured anew"
    found, wanted = other.export(STATE), whole.export(STATE)
    assert all(found[name].tobytes() == array.tobytes() for name, array in wanted.items())
    assert ("generator/cuda" in checkpoint.tensors) == (make is conv_trainer)
    end(whole, other)


def test_a_graph_that_is_captured_after_the_resume_goes_on_to_the_bit(tmp_path: Path) -> None:
    whole, rows = preset_trainer("graph")
    losses(whole, rows, range(5))
    checkpoint = saved(whole, tmp_path)
    expected = losses(whole, rows, range(5, 12))
    other, _ = preset_trainer("graph")
    other.resume(checkpoint)
    assert losses(other, rows, range(5, 12)) == expected
    end(whole, other)


def test_the_worker_saves_and_goes_on_with_its_plan(tmp_path: Path) -> None:
    jobs = _whole_and_resumed(tmp_path, spec_of(), "graph")
    command = [sys.executable, "-m", "torch_impl", "work", *(str(job.write()) for job in jobs)]
    _run(command, tmp_path)
    whole, resumed = (list(record.read_lines(Path(job.out) / "steps.rank0.jsonl")) for job in jobs)
    assert resumed == whole[3:]
    digests = [(Path(job.out) / "digest.rank0.json").read_text() for job in jobs]
    assert digests[0] == digests[1]
    _assert_one_plan(jobs)


@pytest.mark.multigpu
def test_a_plan_that_was_measured_is_taken_over(tmp_path: Path) -> None:
    """In bf16 several plans are tried on two GPUs; the resumed run tries none but that of its checkpoint."""
    jobs = _whole_and_resumed(tmp_path, spec_of("micro", devices=2), "graph+inductor")
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "torch_impl", "work"]
    _run([sys.executable, "-m", *launcher, *(str(job.write()) for job in jobs)], tmp_path)
    whole, resumed = _assert_one_plan(jobs)
    assert len(whole["measured_ms"]) > 1 and resumed["measured_ms"] == {}


def _whole_and_resumed(folder: Path, spec: RunSpec, mode: str) -> tuple[Job, Job]:
    def job(name: str, **changes: Any) -> Job:
        out = str(folder / name)
        return Job(side="torch", purpose="run", spec=spec, mode=mode, steps=8, out=out, **changes)

    resume = str(folder / "whole" / "checkpoints" / "step000003")
    return job("whole", save_every=3), job("resumed", resume=resume)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    logs = "".join(path.read_text() for path in folder.rglob("log.*"))
    assert done.returncode == 0, done.stderr + logs


def _assert_one_plan(jobs: tuple[Job, Job]) -> list[dict[str, Any]]:
    """The plans of the whole and the resumed run, which are that of the checkpoint."""
    manifests = [json.loads((Path(job.out) / "manifest.json").read_text()) for job in jobs]
    plans = [manifest["capture"]["plan"] for manifest in manifests]
    assert jobs[1].resume is not None
    checkpoint = open_checkpoint(jobs[1].resume)
    assert checkpoint.written_by["plan"]["name"] == plans[0]["name"] == plans[1]["name"]
    return plans
