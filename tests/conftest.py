"""What every test starts from: few threads, CPU by default, and skips that say why.

The environment is set while pytest reads this file, before any framework can be imported; processes that
tests start inherit it. Nothing here imports torch or jax at module level.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# One thread each: worker processes share few cores, and a reduction's order stays the same everywhere.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# Container images often set it. Hundreds of processes are started, and each would compile the project anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No time limit for one example (the first compiles); the same examples every time, so a red build repeats.
# No test is about time: on a machine with other work the first example of a source takes seconds.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu", action="store_true", help="run the tests marked gpu and multigpu (JAX sees the GPUs)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hide the GPUs from JAX unless they were asked for: it would preallocate most of their memory."""
    if not config.getoption("--gpu"):
        os.environ["JAX_PLATFORMS"] = "cpu"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip GPU tests with the reason: not asked for, or too few GPUs."""
    asked = config.getoption("--gpu")
    num_gpus = _count_gpus() if asked else 0
    for item in items:
        needed = 2 if item.get_closest_marker("multigpu") else 1 if item.get_closest_marker("gpu") else 0
        if needed and not asked:
            item.add_marker(pytest.mark.skip(reason="a GPU test: runs under `pytest --gpu`"))
        elif num_gpus < needed:
            item.add_marker(
                pytest.mark.skip(reason=f"needs {needed} NVIDIA GPU(s), nvidia-smi lists {num_gpus}")
            )


def _count_gpus() -> int:
    """Number of GPUs that `nvidia-smi -L` lists; 0 where there is no such program."""
    if shutil.which("nvidia-smi") is None:
        return 0
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())


@pytest.fixture
def jax_x64() -> Iterator[None]:
    """JAX with 64-bit types, for this test only and in this process.

    For functions called directly; what a worker does with x64 is tested by starting one (`run_python`).
    """
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        yield


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `python *args` in the project root in a fresh process; see the inner docstring."""

    def run(
        *args: str, env: Mapping[str, str] | None = None, code: int = 0, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Return the finished process; fail with its whole output when its exit code is not `code`."""
        done = subprocess.run(
            [sys.executable, *args],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != code:
            pytest.fail(
                f"python {' '.join(args)}\nexit code {done.returncode}, expected {code}\n"
                f"--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
            )
        return done

    return run
