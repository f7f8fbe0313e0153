"""The manifest's environment: JSON, no secrets, and a reason for whatever cannot be told."""

import hashlib
import json
import platform
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from spec.checkout import NO_COMMIT, code_version, describe_checkout
from spec.environment import LEFT_OUT, describe_environment, describe_variables, package_versions
from spec.gpus import describe_gpus

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def test_the_environment_is_json_and_tells_what_can_change_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    facts = json.loads(json.dumps(describe_environment()))
    assert facts["python"]["version"] == platform.python_version()
    assert facts["packages"]["numpy"] == np.__version__
    assert facts["variables"]["OMP_NUM_THREADS"] == "3"
    assert facts["cpu"]["count"] >= facts["cpu"]["usable"] >= 1
    assert facts["argv"] == sys.argv
    assert facts["gpus"] is not None or facts["gpus_reason"]
    assert facts["code"]["commit"] is not None or facts["code"]["reason"]


def test_the_host_is_not_named() -> None:
    facts = describe_environment()
    assert facts["host_hash"] == hashlib.sha256(platform.node().encode()).hexdigest()[:12]


def test_only_variables_that_matter_are_kept_and_secrets_lose_their_value() -> None:
    kept = describe_variables(
        {
            "XLA_FLAGS": "--xla_gpu_autotune_level=0",
            "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
            "HOME": "/home/someone",
            "CUDA_API_KEY": "abc",
            "NCCL_AUTH": "abc",
            "TORCH_HUB": "https://someone:word@example.org/",
            "JAX_CACHE": "hf_abcdefghijkl",
        }
    )
    assert kept == {
        "XLA_FLAGS": "--xla_gpu_autotune_level=0",
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
        "CUDA_API_KEY": LEFT_OUT,
        "NCCL_AUTH": LEFT_OUT,
        "TORCH_HUB": LEFT_OUT,
        "JAX_CACHE": LEFT_OUT,
    }


def test_a_secret_on_the_command_line_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["parity", "run", "--data", "https://me:word@example.org/x"])
    assert describe_environment()["argv"] == ["parity", "run", "--data", LEFT_OUT]


def test_only_packages_that_matter_are_listed() -> None:
    assert {"numpy", "safetensors", "ml-dtypes"} <= package_versions().keys()
    assert not {"pytest", "pip"} & package_versions().keys()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit that holds a file where this project has its own."""
    (tmp_path / "spec").mkdir()
    (tmp_path / "spec" / "checkout.py").write_text("committed = True\n")
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "first")
    return tmp_path


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@needs_git
def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    (checkout / "ignored.py").write_text("x = 1\n")
    (checkout / "notes.txt").write_text("no code\n")
    (checkout / "my_pair").mkdir()
    (checkout / "my_pair" / "pair.py").write_text("pair = None\n")
    commit = git(checkout, "rev-parse", "HEAD")
    assert describe_checkout(checkout) == {"commit": commit, "dirty": False, "diff_sha256": None}


@needs_git
def test_a_changed_checkout_is_dirty_and_each_change_has_its_hash(checkout: Path) -> None:
    found = []
    for file, text in [
        ("spec/checkout.py", "a"),
        ("spec/checkout.py", "b"),
        ("parity/inside/new.py", "a"),
        ("parity/inside/new.py", "b"),
    ]:
        (checkout / file).parent.mkdir(parents=True, exist_ok=True)
        (checkout / file).write_text(text)
        found.append(describe_checkout(checkout))
    assert all(facts["dirty"] for facts in found)
    assert len({facts["diff_sha256"] for facts in found}) == 4
    assert describe_checkout(checkout) == found[-1]


@needs_git
def test_code_inside_somebody_elses_repository_has_no_commit(checkout: Path, tmp_path: Path) -> None:
    inner = checkout / "site-packages"
    (inner / "spec").mkdir(parents=True)
    (inner / "spec" / "checkout.py").touch()
    facts = describe_checkout(inner)
    assert (facts["commit"], facts["dirty"]) == (None, None)
    assert "no checkout of this project" in facts["reason"]


def test_without_git_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert describe_checkout()["reason"] == "git is not installed"
    assert code_version() == (NO_COMMIT, False)


@needs_git
def test_the_version_in_a_folder_name_is_short() -> None:
    commit, dirty = code_version()
    assert len(commit) <= 10
    assert isinstance(dirty, bool)


def fake_nvml() -> types.ModuleType:
    """A pynvml with one GPU that does not tell its MIG mode."""
    nvml = types.ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def refuse(handle: object) -> None:
        raise NVMLError("Not Supported")

    answers = {
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlSystemGetDriverVersion": b"580.1",
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetUUID": b"GPU-1",
        "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=100),
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetClockInfo": 1200,
        "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetEccMode": [1, 0],
        "nvmlDeviceGetPersistenceMode": 0,
        "nvmlInit": None,
        "nvmlShutdown": None,
    }
    for name, answer in answers.items():
        setattr(nvml, name, lambda *arguments, answer=answer: answer)
    for name in ("GRAPHICS", "SM", "MEM"):
        setattr(nvml, f"NVML_CLOCK_{name}", name)
    nvml.NVMLError, nvml.nvmlDeviceGetMigMode = NVMLError, refuse  # type: ignore[attr-defined]
    return nvml


def test_gpus_are_described_in_plain_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    assert describe_gpus() == {
        "driver": "580.1",
        "gpus": [
            {
                "name": "NVIDIA H200",
                "uuid": "GPU-1",
                "memory_bytes": 100,
                "power_limit_w": 700.0,
                "clocks_mhz": {"graphics": 1200, "sm": 1200, "memory": 1200},
                "max_clocks_mhz": {"graphics": 1980, "sm": 1980, "memory": 1980},
                "mig": None,
                "ecc": True,
                "persistence": False,
            }
        ],
    }


def test_without_nvml_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert describe_gpus() == {"driver": None, "gpus": None, "gpus_reason": "nvidia-ml-py is not installed"}
