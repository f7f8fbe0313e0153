"""The cases of `two_ranks.py`, each group in processes of its own, and how such processes end."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.multigpu
ROOT = Path(__file__).resolve().parents[2]


def run(*cases: str, timeout_s: float = 240) -> tuple[subprocess.CompletedProcess[str], float]:
    """Two ranks; the finished process and its seconds."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--standalone", "tests/gpu/two_ranks.py", *cases],
        cwd=ROOT,
        env={**os.environ, "NCCL_NVLS_ENABLE": "0"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done, time.perf_counter() - started


@pytest.mark.parametrize(
    "cases",
    [("flat", "flat_compiled", "overlapped"), ("not_finite", "one_rank_fails", "busy_before"), ("soak",)],
)
def test_two_ranks(cases: tuple[str, ...]) -> None:
    done, _ = run(*cases)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert [line.split(":")[0] for line in done.stdout.splitlines() if ": ok" in line] == list(cases)


@pytest.mark.parametrize("how", ["normally", "by_exception", "by_interrupt", "by_sigterm"])
def test_processes_end_with_a_live_graph(how: str) -> None:
    done, seconds = run(f"end_{how}", timeout_s=90)
    assert (done.returncode == 0) == (how == "normally"), done.stderr[-4000:]
    assert seconds < 60, f"start, capture and end took {seconds:.0f} s"
