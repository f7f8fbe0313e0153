"""Both sides as the referee meets them: worker processes, two ranks each, that share nothing but a job.

What they were given must be the same bits, and what they did the same numbers.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spec.data.batches import add_digests, batch_digest, open_source
from spec.data.folder import batch_file
from spec.job import Job
from spec.weights import load_tensors
from tests.cross import lockstep
from tests.jax_impl.jobs import (
    check_ranks_are_equal,
    check_two_are_one,
    job,
    losses_of,
    manifest_of,
    steps_of,
)
from tests.jax_impl.processes import ROOT, run_group
from tests.jax_impl.small import gpt_problem

PROBLEM = gpt_problem(precision="f64", micro_batches=2)


def _torchrun(asked: Job) -> None:
    command = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "-m",
        "torch_impl",
        "work",
    ]
    done = subprocess.run(
        [sys.executable, *command, str(asked.write())], cwd=ROOT, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def passes(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("sides")
    common = {"problem": PROBLEM, "world_size": 2, "observe": ("grad@0", "m@0", "m@last", "v@last")}
    _torchrun(job(root / "torch", side="torch", mode="eager", **common))
    asked = job(root / "jax", **common)
    outcomes = run_group(["-m", "jax_impl", "work", str(asked.write())])
    assert [code for code, _ in outcomes] == [0, 0], outcomes
    return {side: root / side for side in ("torch", "jax")}


def test_what_they_were_given_is_the_same(passes) -> None:
    manifests = [manifest_of(folder) for folder in passes.values()]
    for field in ("init_sha256", "init_digest"):
        assert manifests[0][field] == manifests[1][field]
    for field in ("parameters", "ties", "precision", "world_size", "num_params"):
        assert manifests[0]["facts"][field] == manifests[1]["facts"][field]
    for step, lines in enumerate(
        zip(*(steps_of(folder, r) for folder in passes.values() for r in (0, 1)), strict=True)
    ):
        digests = [line["batch_digest"] for line in lines]
        assert digests[:2] == digests[2:]
        whole = batch_digest(open_source(PROBLEM).rows(step, 0, 8), first_row=0)
        assert add_digests(digests[:2]) == whole


def test_what_they_did_is_the_same(passes) -> None:
    torch, jax = passes["torch"], passes["jax"]
    assert losses_of(torch) == pytest.approx(losses_of(jax), rel=1e-14)
    for rank in (0, 1):
        for one, other in zip(steps_of(torch, rank), steps_of(jax, rank), strict=True):
            assert (one["lr_bits"], one["tokens"], one["skipped"]) == (
                other["lr_bits"],
                other["tokens"],
                other["skipped"],
            )
    rows = {row.name: row for row in PROBLEM.parameter_table()}
    for step, phases, tolerance in ((0, ("grad",), 1e-13), (3, ("m", "v"), 1e-12)):
        one, other = (
            {key: array for key, array in tensors.items() if key.startswith(phases)}
            for tensors in (load_tensors(batch_file(folder / "tensors", step)) for folder in passes.values())
        )
        assert one and max(lockstep.distances(one, other, rows).values()) < tolerance


def test_two_processes_of_jax_are_one(passes, jax_x64) -> None:
    check_two_are_one(passes["jax"], "f64", tolerance=1e-14)
    check_ranks_are_equal(passes["jax"])


def test_both_write_the_same_files(passes) -> None:
    names = [sorted(str(p.relative_to(f)) for p in f.rglob("*")) for f in passes.values()]
    assert names[0] == names[1]
    keys = [set(manifest_of(folder)) for folder in passes.values()]
    assert keys[0] == keys[1]
    for folder in passes.values():
        assert json.loads((folder / "done.json").read_text())["seconds"] > 0
