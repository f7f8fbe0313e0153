"""Several processes, started as users start them: torchrun on one host, torchrun for each of two nodes.

Two processes on the halves of a batch are one process on the whole: in float64 to the order of the sums, in
float32 to some roundings.
"""

import json
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spec import record
from spec.data.batches import add_digests, batch_digest, open_source, write_batches
from spec.data.folder import batch_file
from spec.job import Job, Timing
from spec.run import Problem
from spec.weights import load_tensors, save_tensors
from tests.torch_impl.small import (
    GPT,
    gpt_problem,
    make_trainer,
    mlp_problem,
    relative_difference,
    run_spec,
    train,
)

ROOT = Path(__file__).resolve().parents[2]
STEPS = 4
LOSS_TOLERANCE = {"f64": 1e-14, "strict": 1e-6}


def make_job(out: Path, problem: Problem, **changes) -> Job:
    settings = {
        "side": "torch",
        "purpose": "run",
        "spec": run_spec(problem, world_size=2),
        "mode": "eager",
        "steps": STEPS,
        "out": str(out),
    }
    return Job(**settings | changes)


def torchrun(*arguments: str, module_arguments: list[str]) -> subprocess.Popen[str]:
    """Starts torchrun in the project root."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *arguments,
        "-m",
        "torch_impl",
        *module_arguments,
    ]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and output; a process that hangs is killed and fails the test."""
    try:
        output, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"hangs: {process.communicate()[0]}")
    return process.returncode, output


def steps_of(folder: Path, rank: int) -> list[dict]:
    return list(record.read_lines(folder / f"steps.rank{rank}.jsonl"))


def losses_of(folder: Path) -> list[float]:
    return [record.from_bits(line["loss_bits"]) for line in steps_of(folder, 0)]


def _write_bad_batches(folder: Path) -> None:
    """The batches of an mlp; in step 1 the second half, which is rank 1's, is not finite."""
    problem = mlp_problem()
    write_batches(folder, open_source(problem), STEPS, problem.global_batch)
    batch = load_tensors(batch_file(folder, 1))
    batch["batch/x"][-1, 0] = np.nan
    save_tensors(batch_file(folder, 1), batch)


@pytest.fixture(scope="module")
def passes(tmp_path_factory) -> Path:
    """One start of two processes that do every job of this file in turn."""
    root = tmp_path_factory.mktemp("two")
    _write_bad_batches(root / "bad")
    observe = ("param@last", "m@last", "grad@0", "batch@0")
    state = tuple(f"{phase}@{step}" for phase in ("param", "m", "v") for step in (0, 1))
    jobs = [
        *(make_job(root / p, gpt_problem(precision=p), observe=observe) for p in LOSS_TOLERANCE),
        make_job(root / "sliced", gpt_problem(precision="f64", micro_batches=2)),
        make_job(root / "refused", mlp_problem(), batches=str(root / "bad"), observe=state),
        make_job(root / "ddp", gpt_problem(precision="f64"), mode="baseline:ddp"),
        make_job(root / "ddp sliced", gpt_problem(precision="f64", micro_batches=2), mode="baseline:ddp"),
        make_job(
            root / "time",
            gpt_problem(),
            purpose="time",
            timing=Timing(windows=2, steps_per_window=2, calls=2),
        ),
    ]
    process = torchrun(
        "--standalone",
        "--nproc-per-node",
        "2",
        module_arguments=["work", *(str(job.write()) for job in jobs)],
    )
    code, output = finish(process)
    assert code == 0, output
    return root


@pytest.mark.parametrize("precision", LOSS_TOLERANCE)
def test_two_processes_are_one(passes, precision) -> None:
    trainer = make_trainer(gpt_problem(precision=precision))
    tolerance = LOSS_TOLERANCE[precision]
    expected = train(trainer, 1)
    gradient = trainer.export(["grad"])
    expected += train(trainer, STEPS - 1, start=1)
    assert losses_of(passes / precision) == pytest.approx(expected, rel=tolerance)
    found = load_tensors(batch_file(passes / precision / "tensors", 0))
    both = {key: found[key] for key in gradient}
    assert relative_difference(both, gradient) < 10 * tolerance


@pytest.mark.parametrize("name", ["f64", "strict", "refused"])
def test_ranks_end_equal_to_the_bit(passes, name) -> None:
    digests = [(passes / name / f"digest.rank{rank}.json").read_text() for rank in (0, 1)]
    assert digests[0] == digests[1]
    lines = [steps_of(passes / name, rank) for rank in (0, 1)]
    for one, other in zip(*lines, strict=True):
        for field in ("step", "loss_bits", "grad_norm_bits", "lr_bits", "skipped"):
            assert one[field] == other[field]


def test_each_rank_records_its_own_rows(passes) -> None:
    source, trainer = open_source(gpt_problem()), make_trainer(gpt_problem())
    lines = [steps_of(passes / "strict", rank) for rank in (0, 1)]
    for step, (one, other) in enumerate(zip(*lines, strict=True)):
        whole = source.rows(step, 0, 8)
        assert add_digests([one["batch_digest"], other["batch_digest"]]) == batch_digest(whole, first_row=0)
        trainer.step(whole)
        assert one["tokens"] + other["tokens"] == trainer.metrics().tokens
        assert one["tokens"] < 4 * GPT.seq_len
    written = load_tensors(batch_file(passes / "strict" / "tensors", 0))
    assert written["batch/tokens"].tobytes() == source.rows(0, 0, 8)["tokens"].tobytes()


def test_micro_batches_of_each_process_add_up(passes) -> None:
    assert losses_of(passes / "sliced") == pytest.approx(losses_of(passes / "f64"), rel=1e-14)


def test_one_ranks_bad_row_refuses_the_update_of_all(passes) -> None:
    assert [line["skipped"] for line in steps_of(passes / "refused", 0)] == [0, 1, 1, 1]
    before, after = (load_tensors(batch_file(passes / "refused" / "tensors", step)) for step in (0, 1))
    assert all(after[key].tobytes() == array.tobytes() for key, array in before.items())


@pytest.mark.parametrize("name", ["ddp", "ddp sliced"])
def test_ddp_takes_the_mean_over_all_tokens(passes, name) -> None:
    """Ranks differ in their number of tokens, so DDP's own mean would be another loss. The tolerance is stock
    clipping's 1e-6 beside the norm."""
    assert losses_of(passes / name) == pytest.approx(losses_of(passes / "f64"), rel=1e-6)


def test_rank_0_alone_writes_samples(passes) -> None:
    kinds = [sample["kind"] for sample in record.read_lines(passes / "time" / "windows.jsonl")]
    assert kinds == ["start"] + ["window"] * 2 + ["dispatch"] * 2 + ["memory"]
    manifest = json.loads((passes / "time" / "manifest.json").read_text())
    assert manifest["facts"]["world_size"] == 2


def test_one_ranks_error_ends_all_and_is_named(tmp_path) -> None:
    """Rank 1 reads a token that is not in the vocabulary while rank 0 waits for it in the all-reduce."""
    problem = gpt_problem()
    write_batches(tmp_path / "bad", open_source(problem), STEPS, problem.global_batch)
    batch = load_tensors(batch_file(tmp_path / "bad", 1))
    batch["batch/tokens"][-1, 0] = GPT.vocab
    save_tensors(batch_file(tmp_path / "bad", 1), batch)
    job = make_job(tmp_path / "run", problem, batches=str(tmp_path / "bad"))
    code, _ = finish(
        torchrun("--standalone", "--nproc-per-node", "2", module_arguments=["work", str(job.write())])
    )
    error = json.loads((tmp_path / "run" / "error.json").read_text())
    assert code != 0
    assert (error["code"], error["rank"]) == (2, 1)
    assert f"tokens[7, 0] is {GPT.vocab}" in error["numbers"]
    assert not (tmp_path / "run" / "done.json").exists()


def test_two_nodes_meet_on_loopback(tmp_path) -> None:
    """By hand, as two hosts would: one torchrun each, with the address of the first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hand = [
        "toy-mlp",
        "--steps",
        "3",
        "--device",
        "cpu",
        "--global-batch",
        "8",
        "--out",
        str(tmp_path / "run"),
    ]
    nodes = [
        torchrun(
            *("--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "1"),
            *("--master-addr", "127.0.0.1", "--master-port", str(port)),
            module_arguments=hand,
        )
        for node in (0, 1)
    ]
    outcomes = [finish(node) for node in nodes]
    assert [code for code, _ in outcomes] == [0, 0], outcomes
    assert len(steps_of(tmp_path / "run", 0)) == len(steps_of(tmp_path / "run", 1)) == 3
    assert outcomes[0][1].splitlines()[-1] == str(tmp_path / "run")
