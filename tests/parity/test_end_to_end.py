"""Both real sides under the real command line: clean runs are the same, planted changes are named."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.commands import free_port
from spec.data.shards import write_shard
from tests.parity.conftest import Parity, check_schema, command, environ, run_in

CLIPPED = "jax:clip_eps=1e-2"


def run(folder: Path, words: str, code: int) -> dict[str, Any]:
    """The result of one run in a folder, whose exit code must be `code`."""
    content = json.loads(run_in(folder, f"{words} --json -", code).stdout)
    check_schema(content)
    return content


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with run 0001, clean, and run 0002, with a change planted on the JAX side."""
    folder = tmp_path_factory.mktemp("runs")
    run(folder, "run toy-mlp --steps 100", code=0)
    run(folder, f"run toy-mlp --steps 100 --no-time --edit {CLIPPED}", code=1)
    yield folder


def result(folder: Path, number: str) -> dict[str, Any]:
    return json.loads(next((folder / "runs").glob(f"{number}_*/result.json")).read_text())


def test_a_clean_run_is_the_same_and_is_timed(runs: Path) -> None:
    content = result(runs, "0001")
    numerics, speed = content["numerics"], content["speed"]
    assert (content["verdict"], numerics["steps"]) == ("SAME", 100)
    assert numerics["loss"]["max_rel"] <= numerics["loss"]["tolerance"]
    assert {(item["phase"], item["step"]) for item in numerics["tensors"]} >= {("grad", 0), ("param", 99)}
    assert speed["torch"]["step_ms"]["n"] == speed["jax"]["step_ms"]["n"] == 20
    assert speed["verdict"] in ("FASTER", "SLOWER", "SAME", "AMBIGUOUS")
    seconds = content["seconds"]
    assert seconds["total"] >= seconds["launches"] >= seconds["start_up"] + seconds["jobs"] - 0.1


def test_a_planted_change_is_named_by_step_phase_and_tensor(runs: Path) -> None:
    content = result(runs, "0002")
    found = content["numerics"]["first_divergence"]
    assert (content["verdict"], found["step"], found["phase"]) == ("DIFFERENT", 0, "clipped")
    assert content["runs"][0]["edits"]["jax"] == ["clip_eps=0.01"]


def test_saved_runs_are_compared_each_side_with_itself(runs: Path) -> None:
    content = run(runs, "compare 0001 0002", code=1)
    torch, jax = content["comparisons"]
    assert torch["verdict"] == "SAME"
    # The same program on the same machine: not one bit differs between two processes.
    assert {item["max_abs"] for item in torch["tensors"]} == {0.0}
    assert (jax["verdict"], jax["first_divergence"]["phase"]) == ("DIFFERENT", "clipped")
    assert content["numerics"] == jax


def test_power_is_refused_to_a_run_that_found_something(runs: Path) -> None:
    assert "Power is of a run that found nothing." in run_in(runs, "power 0002", code=2).stderr


def test_a_change_on_torchs_side_is_named_against_its_clean_run(runs: Path) -> None:
    words = "train toy-mlp --backend torch --steps 100 --no-time --edit torch:weight_decay=0"
    run(runs, words, code=0)
    (torch,) = run(runs, "compare 0001 last", code=1)["comparisons"]
    found = torch["first_divergence"]
    assert (torch["verdict"], found["step"], found["phase"]) == ("DIFFERENT", 0, "param")


def find(folder: Path, preset: str, edit: str) -> tuple[int, str]:
    words = f"run {preset} --devices 1 --steps 3 --no-time --edit {edit}"
    found = run(folder, words, code=1)["numerics"]["first_divergence"]
    return found["step"], found["phase"]


@pytest.mark.slow  # A run of both sides each; those above show the like.
@pytest.mark.parametrize(
    ("preset", "edit", "phase"),
    [
        ("toy-mlp", "torch:weight_decay=0", "param"),
        ("tiny", "jax:weight_decay=0.09", "param"),
        ("tiny", "jax:gelu_erf=1", "grad"),
        ("tiny", "torch:layernorm_eps=1e-3", "loss"),
        ("tiny", "jax:schedule_offset=1", "lr"),
        ("toy-mlp", "torch:loss_scale=1.001", "loss"),
        ("toy-mlp", "jax:adam_eps=1e-5", "param"),
    ],
)
def test_planted_changes_show_where_they_act(tmp_path: Path, preset: str, edit: str, phase: str) -> None:
    assert find(tmp_path, preset, edit) == (0, phase)


def test_a_token_beyond_the_vocabulary_is_the_users_to_mend(parity: Parity, tmp_path: Path) -> None:
    write_shard(tmp_path / "shard.bin", [np.arange(400) % 300])
    done = parity("run tiny --backend torch --devices 1 --steps 2 --data shard.bin", code=2)
    assert "token 256, vocabulary 256" in done.stderr


def check_bounds(numerics: dict[str, Any], loss: float, grad: float) -> None:
    assert numerics["steps"] == 100 and numerics["loss"]["max_rel"] <= loss
    assert max(item["rms_rel"] for item in numerics["tensors"] if item["phase"] == "grad") <= grad


def test_toy_mlp_meets_the_bounds_for_a_hundred_steps(runs: Path) -> None:
    check_bounds(result(runs, "0001")["numerics"], loss=2e-6, grad=6e-6)


@pytest.mark.slow  # A run of both sides; the one in float32 is made for other tests too.
def test_toy_mlp_meets_the_bounds_of_float64_for_a_hundred_steps(tmp_path: Path) -> None:
    numerics = run(tmp_path, "run toy-mlp --steps 100 --no-time --precision f64", code=0)["numerics"]
    check_bounds(numerics, loss=1e-14, grad=1e-13)


@pytest.mark.slow
def test_two_processes_a_side(tmp_path: Path) -> None:
    content = run(tmp_path, "run tiny", code=0)
    assert content["numerics"]["steps"] == 50
    assert content["numerics"]["loss"]["max_rel"] <= 2e-6


@pytest.mark.slow
def test_one_process_of_jax_holds_all_devices(tmp_path: Path) -> None:
    words = "run toy-mlp --devices 2 --steps 5 --no-time --mode jax=jit:oneprocess"
    assert run(tmp_path, words, code=0)["numerics"]["loss"]["max_rel"] <= 2e-6
    assert len(list(tmp_path.glob("runs/*/passes/*_jax_run/steps.rank*.jsonl"))) == 1


@pytest.mark.slow
def test_float64_agrees_to_the_last_bits(tmp_path: Path) -> None:
    numerics = run(tmp_path, "run tiny --steps 50 --no-time --precision f64", code=0)["numerics"]
    assert numerics["loss"]["max_rel"] <= 1e-14
    assert max(item["rms_rel"] for item in numerics["tensors"] if item["phase"] == "grad") <= 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("side", ["torch", "jax"])
def test_two_hosts_meet_at_an_address(tmp_path: Path, side: str) -> None:
    """Two referees on this machine stand for two hosts."""
    address = f"127.0.0.1:{free_port()}"
    words = f"train tiny --backend {side} --devices 2 --nodes 2 --rendezvous {address} --steps 3 --no-time"
    hosts = [
        subprocess.Popen(
            command(f"{words} --node-rank {rank} --out host{rank}"),
            cwd=tmp_path,
            env=environ(),
            stdout=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    assert [host.wait(200) for host in hosts] == [0, 0]
    assert result_curve(tmp_path / "host0", side) == 3


def result_curve(out: Path, side: str) -> int:
    return json.loads(next(out.glob("0001_*/result.json")).read_text())["curves"][side]["steps"]
