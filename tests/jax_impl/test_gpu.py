"""What only a GPU can show of the JAX side: how it rounds, repeats, reduces over NCCL, and what it launches.

Every test starts workers of its own: a process of JAX stays on the platform of its first array.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spec import record
from spec.job import Job, Timing
from spec.run import Execution, RunSpec
from tests.jax_impl.jobs import job, losses_of, manifest_of
from tests.jax_impl.processes import ROOT, run_group
from tests.jax_impl.small import gpt_problem

pytestmark = pytest.mark.gpu

FREE_PLATFORM = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}


def gpu_job(out: Path, purpose: str = "run", world_size: int = 1, **changes) -> Job:
    """A job on GPUs; `precision` and `micro_batches` go to the problem."""
    problem = {name: changes.pop(name) for name in ("precision", "micro_batches") if name in changes}
    execution = Execution(device="cuda", world_size=world_size)
    spec = RunSpec(name="test", problem=gpt_problem(**problem), execution=execution)
    return job(out, purpose, spec=spec, **changes)


def work(*jobs: Job) -> None:
    """One process does the jobs and ends well."""
    command = [sys.executable, "-m", "jax_impl", "work", *(str(each.write()) for each in jobs)]
    done = subprocess.run(
        command, cwd=ROOT, env=FREE_PLATFORM, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("precisions", [("strict", "tf32", "bf16"), ("f64",)])
def test_probes_find_the_table(tmp_path, precisions) -> None:
    """A probe that fails ends the job; TF32 can be seen nowhere else."""
    work(*(gpu_job(tmp_path / name, "describe", precision=name) for name in precisions))
    for name in precisions:
        found = {probe["name"]: probe["got"] for probe in manifest_of(tmp_path / name)["probes"]}
        expected = {"f64": "float64", "strict": "float32", "tf32": "tf32", "bf16": "bfloat16"}[name]
        assert found["matmul_inputs"] == expected


def test_strict_repeats_bit_for_bit_and_agrees_with_the_cpu(tmp_path) -> None:
    modes = {
        "one": "jit",
        "other": "jit",
        "together": "jit:concurrent",
        "off": "jit:off",
        "all": "jit:all+min1",
    }
    work(*(gpu_job(tmp_path / name, observe=("grad@0",), mode=mode) for name, mode in modes.items()))
    digests = {name: (tmp_path / name / "digest.rank0.json").read_text() for name in modes}
    assert set(digests.values()) == {digests["one"]}, digests
    cpu = job(tmp_path / "cpu")
    done = subprocess.run([sys.executable, "-m", "jax_impl", "work", str(cpu.write())], cwd=ROOT, timeout=200)
    assert done.returncode == 0
    assert losses_of(tmp_path / "one") == pytest.approx(losses_of(tmp_path / "cpu"), rel=1e-5)
    manifest = manifest_of(tmp_path / "one")
    assert manifest["facts"]["compiler_options"]["xla_gpu_deterministic_ops"] is True
    assert manifest["reasons"]["observation"].endswith("equal to the bit, at steps [0]")


def test_bf16_trains_in_place_and_is_timed(tmp_path) -> None:
    timing = Timing(warmup_steps=3, windows=2, steps_per_window=5, calls=5)
    work(
        gpu_job(tmp_path / "run", precision="bf16"),
        gpu_job(tmp_path / "time", "time", precision="bf16", timing=timing),
    )
    capture = manifest_of(tmp_path / "run")["capture"]
    assert capture["state_bytes_in_place"] == 3 * 4 * manifest_of(tmp_path / "run")["facts"]["num_params"] + 8
    assert capture["command_buffers"]["command_buffers"] >= 1
    assert capture["command_buffers"]["thunks_in"] > capture["command_buffers"]["thunks_out"]
    samples = list(record.read_lines(tmp_path / "time" / "windows.jsonl"))
    kinds = ["start"] + ["window"] * 2 + ["dispatch"] * 5 + ["launch"] * 5 + ["memory"]
    assert [s["kind"] for s in samples] == kinds
    assert samples[0]["initial"] is True
    assert samples[-1]["peak_mem_bytes"] > 0


@pytest.mark.multigpu
def test_two_gpus_reduce_once_and_agree_with_one(tmp_path) -> None:
    work(gpu_job(tmp_path / "one"))
    asked = gpu_job(tmp_path / "two", world_size=2, micro_batches=2)
    command = ["-m", "jax_impl", "work", str(asked.write())]
    outcomes = run_group(command, timeout_s=280, environ=FREE_PLATFORM | {"NCCL_NVLS_ENABLE": "0"}, gpus=True)
    assert [code for code, _ in outcomes] == [0, 0], outcomes
    capture = manifest_of(tmp_path / "two")["capture"]
    assert capture["elements_reduced"] == manifest_of(tmp_path / "two")["facts"]["num_params"] + 2
    assert losses_of(tmp_path / "two") == pytest.approx(losses_of(tmp_path / "one"), rel=1e-6)
