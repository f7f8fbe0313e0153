"""Real sides under the real command line: runs that are killed, gone on with, and handed over."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from spec import record
from spec.checkpoint import checkpoints_in
from tests.parity.conftest import Parity, command, environ
from tests.parity.test_end_to_end import run
from tests.parity.test_referee import processes_with


def passes(folder: Path, number: str, kind: str) -> list[Path]:
    return sorted((folder / "runs").glob(f"{number}_*/passes/*_{kind}"))


def losses(folder: Path) -> dict[int, str]:
    return {line["step"]: line["loss_bits"] for line in record.read_lines(folder / "steps.rank0.jsonl")}


def pairs(content: dict[str, Any]) -> list[tuple[list[str], str]]:
    return [(pair["pair"], pair["verdict"]) for pair in content["comparisons"]]


IN_FLOAT64 = "toy-mlp --steps 24 --precision f64 --device cpu --no-time"


@pytest.fixture(scope="module")
def handed_over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with run 0001 of both sides, handed over after 8 and 16 steps, where checkpoints are."""
    folder = tmp_path_factory.mktemp("handed_over")
    run(folder, f"run {IN_FLOAT64} --handoff 8,16", code=0)
    return folder


def test_a_run_in_float64_is_handed_over_and_back(handed_over: Path) -> None:
    content = json.loads(next(handed_over.glob("runs/0001_*/result.json")).read_text())
    assert pairs(content) == [
        (["torch", "jax"], "SAME"),
        (["torch-jax-torch", "torch"], "SAME"),
        (["torch-jax-torch", "jax"], "SAME"),
    ]
    for pair in content["comparisons"]:
        assert pair["steps"] == 24 and pair["loss"]["max_rel"] <= 1e-13
        assert {item["step"] for item in pair["tensors"]} == {0, 23}
    stretches = content["handoff"]["stretches"]
    assert [(item["side"], item["first_step"], item["stop"]) for item in stretches] == [
        ("torch", 0, 8),
        ("jax", 8, 16),
        ("torch", 16, 24),
    ]
    assert all(rel <= 1e-13 for item in stretches for rel in item["loss_rel"].values())
    torch = losses(passes(handed_over, "0001", "torch_run")[0])
    first, last = (losses(folder) for folder in passes(handed_over, "0001", "torch_handoff"))
    # Torch's own first stretch is its whole run's, to the bit; jax's rounding shows in its last one.
    assert first == {step: torch[step] for step in range(8)}
    assert last.keys() == set(range(16, 24))


@pytest.mark.slow  # Both sides in two processes each, torch twice: some 40 s.
def test_a_ragged_run_of_two_processes_is_handed_over_in_strict(tmp_path: Path) -> None:
    content = run(tmp_path, "run tiny --steps 30 --device cpu --handoff 10,20", code=0)
    assert {verdict for _, verdict in pairs(content)} == {"SAME"} and len(content["comparisons"]) == 3
    assert content["speed"]["ratio"] is not None
    assert [len(launch["passes"]) for launch in content["launches"]] == [3, 4, 2]


@pytest.mark.slow  # Three launches of both sides.
def test_a_mistake_behind_the_change_is_named_by_its_step(tmp_path: Path) -> None:
    edit = "--edit jax:weight_decay=0.2 --precision f64"
    content = run(tmp_path, f"run toy-mlp --device cpu --steps 6 {edit} --handoff 3 --no-time", code=1)
    against_torch = next(pair for pair in content["comparisons"] if pair["pair"] == ["torch-jax", "torch"])
    assert against_torch["verdict"] == "DIFFERENT"
    found = against_torch["first_divergence"]
    # The first update of jax is that of step 3; the next step's loss shows it.
    assert (found["step"], found["phase"]) == (4, "loss")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run 0001 of both sides, with checkpoints after 5 and 8 steps."""
    folder = tmp_path_factory.mktemp("saved")
    run(folder, "run toy-mlp --steps 8 --device cpu --save-every 5 --no-time", code=0)
    for kind in ("torch_run", "jax_run"):
        checkpoints = passes(folder, "0001", kind)[0] / "checkpoints"
        assert list(checkpoints_in(checkpoints)) == [5, 8]
    return folder


@pytest.mark.slow  # Launches both sides again and again.
def test_both_sides_go_on_and_each_is_its_uninterrupted_self(saved: Path) -> None:
    for kind in ("torch_run", "jax_run"):
        last = passes(saved, "0001", kind)[0] / "checkpoints/step000008"
        last.rename(last.with_name("kept_apart"))
    content = run(saved, "run toy-mlp --steps 8 --device cpu --resume 1 --no-time", code=0)
    assert content["verdict"] == "SAME" and content["numerics"]["steps"] == 3
    assert content["runs"][0]["resumed"].keys() == {"torch", "jax"}
    assert content["curves"]["jax"]["first_step"] == 5
    compared = run(saved, "compare 1 last", code=0)
    assert [pair["steps"] for pair in compared["comparisons"]] == [3, 3]
    for pair in compared["comparisons"]:
        assert pair["loss"]["max_rel"] == 0.0
        assert {item["max_abs"] for item in pair["tensors"]} == {0.0}


@pytest.mark.slow  # Three launches of both sides.
def test_both_sides_go_on_from_one_checkpoint(saved: Path) -> None:
    checkpoint = passes(saved, "0001", "jax_run")[0] / "checkpoints/step000005"
    content = run(saved, f"run toy-mlp --steps 8 --device cpu --resume {checkpoint} --no-time", code=0)
    assert set(content["runs"][0]["resumed"].values()) == {str(checkpoint)}
    assert {item["step"] for item in content["numerics"]["tensors"]} == {5, 7}


def test_a_damaged_checkpoint_is_the_users_to_mend(handed_over: Path, parity: Parity, tmp_path: Path) -> None:
    whole = passes(handed_over, "0001", "torch_handoff")[0] / "checkpoints/step000008"
    checkpoint = shutil.copytree(whole, tmp_path / whole.name)
    shard = next(checkpoint.glob("*.safetensors"))
    content = shard.read_bytes()
    words = f"train {IN_FLOAT64} --backend torch --resume {checkpoint}"
    shard.write_bytes(content[:-1])
    done = parity(words, code=2)
    assert shard.name in done.stderr and len(done.stderr.splitlines()) < 6
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    done = parity(words, code=2)
    assert shard.name in done.stderr and "hash" in done.stderr
    assert done.stdout.startswith("FAILED  torch in 001_torch_run")


@pytest.mark.slow  # Launches both sides again and again.
def test_a_run_that_was_killed_goes_on_to_the_bit(tmp_path: Path) -> None:
    """SIGKILL for the referee and the side, wherever they are; only steps since the checkpoint are lost."""
    words = "train toy-mlp --backend torch --device cpu --steps 600 --no-time"
    token = f"token-killed-{tmp_path}"
    referee = subprocess.Popen(
        command(f"{words} --save-every 10 --keep 2"),
        cwd=tmp_path,
        env=environ(PARITY_TOKEN=token),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 100
    while not list(tmp_path.glob("runs/0001*/passes/*/checkpoints/step*")) and time.monotonic() < deadline:
        assert referee.poll() is None
        time.sleep(0.005)
    for process in processes_with(f"PARITY_TOKEN={token}"):
        os.kill(process, signal.SIGKILL)
    assert referee.wait(20) == -signal.SIGKILL
    assert not list(tmp_path.glob("runs/0001*/result.json"))
    run(tmp_path, f"{words} --resume last", code=0)
    run(tmp_path, words, code=0)
    killed, resumed, whole = (passes(tmp_path, number, "torch_run")[0] for number in ("0001", "0002", "0003"))
    step = min(losses(resumed))
    assert step <= len(losses(killed)) < 600
    assert losses(killed) | losses(resumed) == losses(whole)
    digests = [json.loads((folder / "digest.rank0.json").read_text()) for folder in (resumed, whole)]
    assert digests[0] == digests[1]
