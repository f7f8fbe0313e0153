"""Several processes, started as users start them: one a device, meeting at the address of the first.

Two processes on the halves of a batch are one process on the whole: in float64 to the order of the sums, in
float32 to some roundings.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spec import record
from spec.data.batches import add_digests, batch_digest, open_source, write_batches
from spec.data.folder import batch_file
from spec.job import Job, Timing
from spec.weights import load_tensors, save_tensors
from tests.jax_impl.jobs import (
    STEPS,
    check_ranks_are_equal,
    check_two_are_one,
    error_of,
    job,
    losses_of,
    manifest_of,
    steps_of,
)
from tests.jax_impl.processes import ROOT, run_group
from tests.jax_impl.small import (
    GPT,
    STATE,
    gpt_problem,
    make_trainer,
    mlp_problem,
    relative_difference,
    run_spec,
)


def work(jobs: list[Job]) -> None:
    """Two processes do the jobs and end well."""
    outcomes = run_group(["-m", "jax_impl", "work", *(str(each.write()) for each in jobs)])
    assert [code for code, _ in outcomes] == [0, 0], "\n".join(output for _, output in outcomes)


@pytest.fixture(scope="module")
def passes(tmp_path_factory) -> Path:
    """One start of two processes in float32, that does every job of this file in turn."""
    root = tmp_path_factory.mktemp("two")
    bad = mlp_problem()
    write_batches(root / "bad", open_source(bad), STEPS, bad.global_batch)
    batch = load_tensors(batch_file(root / "bad", 1))
    batch["batch/x"][-1, 0] = np.nan
    save_tensors(batch_file(root / "bad", 1), batch)
    state = tuple(f"{phase}@{step}" for phase in STATE for step in (0, 1))

    def two(name: str, purpose: str = "run", **changes) -> Job:
        return job(root / name, purpose, world_size=2, **changes)

    timing = Timing(warmup_steps=1, windows=2, steps_per_window=2, calls=2)
    work(
        [
            two("strict", problem=gpt_problem(micro_batches=2), observe=("m@0", "batch@0", "act@0")),
            two("refused", problem=mlp_problem(), batches=str(root / "bad"), observe=state),
            two("stock", problem=mlp_problem(micro_batches=2), mode="baseline:jit", observe=("grad@0",)),
            two("ours", problem=mlp_problem(micro_batches=2), observe=("grad@0",)),
            two("apart", problem=mlp_problem(micro_batches=2), mode="jit:apart+overlap"),
            two("buckets", problem=mlp_problem(micro_batches=2), mode="jit:buckets"),
            two("time", "time", problem=mlp_problem(), timing=timing),
        ]
    )
    return root


def test_two_processes_are_one(passes) -> None:
    """In float64 too, beside torch's processes, in `tests/cross/test_processes.py`."""
    check_two_are_one(passes / "strict", "strict", tolerance=1e-6)


@pytest.mark.parametrize("name", ["strict", "refused", "stock"])
def test_ranks_end_equal_to_the_bit(passes, name) -> None:
    check_ranks_are_equal(passes / name)


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
    assert written["act/output"].shape == (4, GPT.seq_len, GPT.vocab)


def test_every_gradient_is_reduced_once_outside_of_the_loop(passes) -> None:
    manifest = manifest_of(passes / "strict")
    capture = manifest["capture"]
    assert manifest["facts"]["world_size"] == 2
    assert (capture["programs_compiled"], capture["all_reduces"]) == (1, 1)
    assert capture["elements_reduced"] == manifest["facts"]["num_params"] + 2
    assert capture["state_bytes_in_place"] == 3 * 4 * manifest["facts"]["num_params"] + 2 * 4
    observation = manifest_of(passes / "ours")["reasons"]["observation"]
    assert observation.endswith("equal to the bit, at steps [0]")


@pytest.mark.parametrize("arrays", ["apart", "buckets"])
def test_several_arrays_are_reduced_once_too(passes, arrays) -> None:
    manifest = manifest_of(passes / arrays)
    assert manifest["capture"]["elements_reduced"] == manifest["facts"]["num_params"] + 2
    assert losses_of(passes / arrays) == pytest.approx(losses_of(passes / "ours"), rel=2e-6)


def test_a_reduction_inside_the_loop_is_caught() -> None:
    num_params = 5 * 7 + 7 + 7 * 3 + 3
    for code, output in run_group(["-m", "tests.jax_impl.planted"]):
        assert code == 0, output
        assert "exactly once, outside of its loops" in output
        assert f"{num_params + 2} expected; in loops: " in output
        assert "in loops: 0" not in output


def test_one_ranks_bad_row_refuses_the_update_of_all(passes) -> None:
    assert [line["skipped"] for line in steps_of(passes / "refused")] == [0, 1, 1, 1]
    before, after = (load_tensors(batch_file(passes / "refused" / "tensors", step)) for step in (0, 1))
    assert all(after[key].tobytes() == array.tobytes() for key, array in before.items())


def test_the_stock_step_agrees_with_ours(passes) -> None:
    assert losses_of(passes / "stock") == pytest.approx(losses_of(passes / "ours"), rel=2e-6)
    one, other = (load_tensors(batch_file(passes / name / "tensors", 0)) for name in ("stock", "ours"))
    assert relative_difference(one, other) < 2e-6
    tokens = [
        sum(steps_of(passes / name, rank)[0]["tokens"] for rank in (0, 1)) for name in ("stock", "ours")
    ]
    assert tokens[0] == tokens[1]


def test_rank_0_alone_writes_samples(passes) -> None:
    kinds = [sample["kind"] for sample in record.read_lines(passes / "time" / "windows.jsonl")]
    assert kinds == ["start"] + ["window"] * 2 + ["dispatch"] * 2 + ["launch"] * 2 + ["memory"]


def test_one_ranks_error_ends_all_and_is_named(tmp_path) -> None:
    """Rank 1 reads a token that is not in the vocabulary while rank 0 waits for it in the all-reduce."""
    problem = gpt_problem()
    write_batches(tmp_path / "bad", open_source(problem), STEPS, problem.global_batch)
    batch = load_tensors(batch_file(tmp_path / "bad", 1))
    batch["batch/tokens"][-1, 0] = GPT.vocab
    save_tensors(batch_file(tmp_path / "bad", 1), batch)
    asked = job(tmp_path / "run", problem=problem, world_size=2, batches=str(tmp_path / "bad"))
    codes = [code for code, _ in run_group(["-m", "jax_impl", "work", str(asked.write())], timeout_s=60)]
    error = error_of(tmp_path / "run")
    assert codes[1] == 2 and codes[0] != 0
    assert (error["code"], error["rank"]) == (2, 1)
    assert f"tokens[7, 0] is {GPT.vocab}" in error["numbers"]
    assert not (tmp_path / "run" / "done.json").exists()


def test_without_a_compiler_ranks_refuse_before_they_join(tmp_path) -> None:
    """In a group that has met, one that ends takes down the others before they could say why."""
    out = tmp_path / "run"
    command = ["-m", "jax_impl", "toy-mlp", "--device", "cpu", "--mode", "nojit", "--out", str(out)]
    for code, output in run_group(command, timeout_s=60):
        assert code == 2 and "nojit runs on one device" in output
    assert not out.exists()


def test_two_hosts_meet_on_loopback(tmp_path) -> None:
    """By hand, as on two hosts: the same command on each, the variables of jax.distributed set."""
    out = tmp_path / "run"
    command = ["-m", "jax_impl", "toy-mlp", "--steps", "3", "--device", "cpu", "--global-batch", "8"]
    outcomes = run_group([*command, "--out", str(out)])
    assert [code for code, _ in outcomes] == [0, 0], outcomes
    assert len(steps_of(out, 0)) == len(steps_of(out, 1)) == 3
    assert outcomes[0][1].splitlines()[-1] == str(out)
    assert manifest_of(out)["facts"]["world_size"] == 2


def test_alone_it_needs_no_variables(tmp_path) -> None:
    command = [sys.executable, "-m", "jax_impl", "toy-mlp", "--steps", "2", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert manifest_of(tmp_path / "run")["facts"]["world_size"] == 1


@pytest.mark.slow  # Three processes that compile.
def test_one_process_with_two_devices_is_two_processes_to_the_bit(tmp_path) -> None:
    """The sum of two addends has one order; nothing else is shared out otherwise."""
    asked = {}
    for name, one_process in (("two", False), ("one", True)):
        spec = run_spec(gpt_problem(micro_batches=2), 2)
        spec = replace(spec, execution=replace(spec.execution, jax_one_process=one_process))
        asked[name] = job(tmp_path / name, spec=spec, observe=("grad@0", "param@last"))
    work([asked["two"]])
    environ = os.environ | {
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    }
    command = [sys.executable, "-m", "jax_impl", "work", str(asked["one"].write())]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert losses_of(tmp_path / "one") == losses_of(tmp_path / "two")
    assert (tmp_path / "one" / "digest.rank0.json").read_text() == (
        tmp_path / "two" / "digest.rank0.json"
    ).read_text()
    for step, line in enumerate(steps_of(tmp_path / "one")):
        halves = [steps_of(tmp_path / "two", rank)[step] for rank in (0, 1)]
        assert line["tokens"] == sum(half["tokens"] for half in halves)
        assert line["batch_digest"] == add_digests([half["batch_digest"] for half in halves])
    capture = manifest_of(tmp_path / "one")["capture"]
    assert capture["elements_reduced"] == manifest_of(tmp_path / "one")["facts"]["num_params"] + 2


def test_a_process_for_more_devices_than_there_are_is_refused(tmp_path) -> None:
    spec = run_spec(mlp_problem(), 2)
    spec = replace(spec, execution=replace(spec.execution, jax_one_process=True))
    asked = job(tmp_path / "run", spec=spec)
    command = [sys.executable, "-m", "jax_impl", "work", str(asked.write())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and "1 of 2" in done.stderr, done.stderr
