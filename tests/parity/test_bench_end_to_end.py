"""Benchmarks of real sides: broken off and gone on with, swept, and held against a saved run."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from parity.processes import MARK
from tests.parity.conftest import Parity, check_schema, command, environ

SHORT = "--steps 10 --windows 5 --steps-per-window 3"


def result(folder: Path, number: int = 1) -> dict[str, Any]:
    content = json.loads(next((folder / "runs").glob(f"{number:04d}_*/result.json")).read_text())
    check_schema(content)
    return content


@pytest.mark.slow
def test_a_sweep_that_is_broken_off_goes_on_where_it_was(parity: Parity, tmp_path: Path) -> None:
    """Ctrl-C in a sweep of three batches of real sides, and the rest of it in a second call: two minutes."""
    words = f"bench toy-mlp {SHORT} --sweep batch=1,8,64"
    asked = command(f"{words} --json broken.json")
    referee = subprocess.Popen(
        asked, cwd=tmp_path, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    # The last pass of the first batch, and the first of the second, are one launch.
    started = time.monotonic()
    while not list(tmp_path.glob("runs/*/passes/004_*/done.json")) and time.monotonic() < started + 200:
        time.sleep(0.05)
    referee.send_signal(signal.SIGINT)
    stdout, stderr = referee.communicate(timeout=60)
    assert referee.returncode == 6, stderr
    assert stdout.startswith("FAILED  torch in ") and "was interrupted" in stdout.splitlines()[0]
    assert f"parity {words} --into 0001 adds to it (--json broken.json" in " ".join(stdout.split())
    assert (tmp_path / "broken.json").exists()
    assert still_running(tmp_path) == []
    broken = result(tmp_path)
    assert broken["verdict"] == "FAILED" and broken["invocations"][0]["ended"] == "interrupted"
    assert {(row["mode"], row["batch"]) for row in broken["bench"]} >= {("eager", 1), ("jit", 1)}
    assert not [row for row in broken["bench"] if row["mode"] == "jit" and row["batch"] > 1]
    assert broken["sweep"]["batches"] == [1, 8, 64]

    parity(f"{words} --into 0001")
    whole = result(tmp_path)
    assert (whole["verdict"], whole["exit_code"]) == (None, 0)
    assert [call["ended"] for call in whole["invocations"]] == ["interrupted", "done"]
    measured = {(row["mode"], row["batch"]): row["invocation"] for row in whole["bench"]}
    # What the first call did not finish is no row of it.
    second = [row["invocation"] for row in whole["bench"] if (row["mode"], row["batch"]) == ("jit", 8)]
    assert second == [2]
    assert measured["jit", 1] == 1 and measured["jit", 8] == measured["jit", 64] == 2
    assert {(point["mode"], point["batch"]) for point in whole["sweep"]["points"]} == measured.keys()
    assert len(whole["sweep"]["model"]) == 2
    assert len({(one["a"], one["b"]) for one in whole["sweep"]["crossings"]}) == 1
    done = parity(f"{words} --into 1", code=2)
    assert "Something of the sweep is left to measure" in done.stderr


def still_running(folder: Path) -> list[str]:
    """Command lines of processes of a launch that work in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            carries = f"{MARK}=".encode() in (entry / "environ").read_bytes()
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if carries and str(folder) in words:
            found.append(words)
    return found


@pytest.mark.slow
def test_a_later_call_adds_contenders_to_a_table(parity: Parity, tmp_path: Path) -> None:
    """Two benchmarks of the JAX side, three launches each: half a minute."""
    words = f"bench toy-mlp --backend jax {SHORT}"
    parity(words)
    done = parity(f"{words} --into last --baselines all")
    content = result(tmp_path)
    rows = [(row["invocation"], row["mode"]) for row in content["bench"]]
    assert rows == [(1, "jit"), (2, "jit"), (2, "baseline:jit")]
    assert content["bench"][2]["ratio_to_own"] is not None and content["bench"][0]["peer"] is None
    assert len(content["launches"]) == 2
    assert all(row["speed"]["initial_state"] for row in content["bench"])
    assert "call 2: " in done.stdout and "every pass was timed from the initial state" in done.stdout
    assert "global batch 8/16" in parity(f"{words} --into 1 --global-batch 16", code=2).stderr
    assert result(tmp_path) == content


@pytest.mark.slow
def test_a_slower_step_fails_and_an_equal_one_does_not(parity: Parity, tmp_path: Path) -> None:
    """The same numbers op by op instead of as one program: four launches of the JAX side, half a minute."""
    words = "run toy-mlp --steps 5 --backend jax"
    parity(words)
    parity(f"{words} --mode jax=nojit")
    done = parity("compare 1 2 --fail-if step_ms.median:50%", code=3)
    first = done.stdout.splitlines()[0]
    assert first.startswith("SAME") and first.endswith("SLOWER than 0001: jax step_ms.median")
    assert "jit -> nojit" in done.stdout
    assert parity("compare 2 1 --fail-if step_ms.median:5%").returncode == 0
    # Held against run 1, not against the newer one of another mode; no machine is 100 times slower by chance.
    parity(f"{words} --against last --fail-if step_ms.median:10000%")
    content = result(tmp_path, 3)
    assert Path(content["against"]["folder"]).name.startswith("0001_")
    (change,) = content["against"]["changes"]
    assert (change["figure"], change["failed"], change["limit"]) == ("step_ms.median", False, "10000%")
    refused = parity(f"{words} --fail-if step_ms.median:5%", code=2)
    assert "add --against last" in refused.stderr and not list(tmp_path.glob("runs/0004*"))
