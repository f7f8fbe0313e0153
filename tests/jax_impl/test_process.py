"""What a process of JAX is given: its share of a GPU's memory, its cache of programs, and one NCCL."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import jax
import pytest

from jax_impl.xla import process
from spec.errors import RuleError
from tests.jax_impl.jobs import job, losses_of, manifest_of
from tests.jax_impl.processes import ROOT
from tests.jax_impl.small import mlp_problem

GB = 10**9


def test_a_share_leaves_others_what_they_hold_and_a_reserve() -> None:
    assert process.memory_fraction(100 * GB, 100 * GB) == 0.9
    assert process.memory_fraction(50 * GB, 100 * GB) == pytest.approx(0.45)
    # A small card keeps a gigabyte back, which is more than a twentieth.
    assert process.memory_fraction(8 * GB, 8 * GB) == pytest.approx(1 - 1024**3 / (8 * GB))
    with pytest.raises(RuleError, match="has memory on its GPU"):
        process.memory_fraction(4 * GB, 100 * GB)


@pytest.fixture
def fresh(monkeypatch, tmp_path) -> Path:
    """No choice made yet, and a folder that is searched first for programs."""
    for name in ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "to be put back")
        monkeypatch.delenv(name)
    monkeypatch.setattr(process, "_memory", {"chosen": None})
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_the_share_is_taken_of_the_gpu_that_is_this_process(fresh, monkeypatch) -> None:
    program = fresh / "nvidia-smi"
    # The last argument is the GPU: number 7 has 40 of 80 GiB free.
    program.write_text('#!/bin/sh\nfor last; do :; done\n[ "$last" = 7 ] && echo "40960, 81920"\n')
    program.chmod(0o755)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,7")
    monkeypatch.setenv("JAX_LOCAL_DEVICE_IDS", "1")
    process.take_memory()
    assert os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.450"
    assert process.describe()["memory"]["free_bytes"] == 40 * 1024**3


def test_what_the_user_chose_is_left(fresh, monkeypatch) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    process.take_memory()
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ
    assert "PREALLOCATE" in process.describe()["memory"]["reason"]


def test_a_process_alone_leaves_the_other_gpus(monkeypatch) -> None:
    before = jax.config.read("jax_cuda_visible_devices")
    try:
        process.use_one_gpu()
        assert jax.config.read("jax_cuda_visible_devices") == "0"
        jax.config.update("jax_cuda_visible_devices", "2")
        process.use_one_gpu()
        assert jax.config.read("jax_cuda_visible_devices") == "2"
    finally:
        jax.config.update("jax_cuda_visible_devices", before)


def test_nccls_watchdog_is_armed_unless_the_user_did(monkeypatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=3")
    process.arm_nccl(5.5)
    armed = "--xla_gpu_autotune_level=3 --xla_gpu_nccl_termination_timeout_seconds=11"
    assert os.environ["XLA_FLAGS"] == armed
    process.arm_nccl(90)
    assert os.environ["XLA_FLAGS"] == armed


def test_a_second_nccl_is_refused_by_name(tmp_path) -> None:
    library = next(Path(sysconfig.get_paths()["stdlib"]).glob("lib-dynload/*.so"))
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        shutil.copy(library, tmp_path / folder / "libnccl.so.2")
    code = f"""
import ctypes
from jax_impl.xla.process import refuse_two_nccl
from spec.errors import RuleError
ctypes.CDLL({str(tmp_path / "one" / "libnccl.so.2")!r})
refuse_two_nccl()
ctypes.CDLL({str(tmp_path / "two" / "libnccl.so.2")!r})
try:
    refuse_two_nccl()
except RuleError as error:
    print(error.message())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "one libnccl" in done.stdout and "two/libnccl.so.2" in done.stdout, done.stderr


def test_a_second_run_takes_its_programs_from_the_cache(tmp_path) -> None:
    environ = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    for name in ("cold", "warm"):
        asked = job(tmp_path / name, problem=mlp_problem())
        command = [sys.executable, "-m", "jax_impl", "work", str(asked.write())]
        subprocess.run(command, cwd=ROOT, env=environ, check=True, timeout=120)
    cold, warm = (manifest_of(tmp_path / name) for name in ("cold", "warm"))
    assert (cold["capture"]["programs_compiled"], cold["capture"]["programs_from_cache"]) == (1, 0)
    assert (warm["capture"]["programs_compiled"], warm["capture"]["programs_from_cache"]) == (0, 1)
    # What is proven of a program is proven of one from a cache too.
    assert warm["capture"]["state_bytes_in_place"] == cold["capture"]["state_bytes_in_place"]
    assert warm["environment"]["compile_cache"]["folder"] == str(tmp_path / "cache")
    assert losses_of(tmp_path / "warm") == losses_of(tmp_path / "cold")
