"""Every worked example is run by the real command line, and its verdict is what it is there to show."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spec import record
from spec.data.digest import add_digests
from tests.parity.conftest import ROOT, command, environ

EXAMPLES = ROOT / "examples"
LITTLE_LLVM = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
"""XLA on CPUs spends most of the time in LLVM's optimiser, which is no matter of these tests."""


def run(folder: Path, words: str, code: int) -> dict[str, Any]:
    """The result of `parity run WORDS` in a folder."""
    done = subprocess.run(
        command(f"run {words} --no-time --json -"),
        cwd=folder,
        env=environ(**LITTLE_LLVM),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr}"
    return json.loads(done.stdout)


def check_proven(content: dict[str, Any]) -> None:
    pair = content["pair"]
    assert pair["proven"] is True and pair["gradient_rel"] < 1e-5
    assert pair["unmatched"] == {"torch": [], "jax": []} and pair["links"]


@pytest.mark.slow  # Runs of both sides; README's commands make the like.
def test_toy_mlp_by_any_first_values(tmp_path: Path) -> None:
    """`spec` draws values that neither side has; the run starts from them on both."""
    shutil.copytree(EXAMPLES / "toy_mlp", tmp_path / "toy")
    text = (tmp_path / "toy" / "pair.py").read_text()
    (tmp_path / "toy" / "pair.py").write_text(text.replace("steps=20,", 'steps=3, init="spec",'))
    content = run(tmp_path, "./toy", code=0)
    check_proven(content)
    assert content["pair"]["init"] == "spec"
    assert content["verdict"] == "SAME" and content["numerics"]["steps"] == 3


@pytest.mark.slow  # Runs of both sides, which compile convolutions.
def test_residual_network_with_running_statistics(tmp_path: Path) -> None:
    content = run(tmp_path, f"{EXAMPLES}/conv_net --steps 3", code=0)
    check_proven(content)
    compared = {item["tensor"] for item in content["numerics"]["tensors"] if item["phase"] == "buffer"}
    assert "blocks.1.norm2.running_var" in compared and len(compared) == 10


@pytest.mark.slow
def test_encoder_with_padding_and_fused_projections(tmp_path: Path) -> None:
    content = run(tmp_path, f"{EXAMPLES}/encoder", code=0)
    check_proven(content)
    assert any(
        "self_attn.in_proj_weight[16:32] <-> layers.0.attention.key" in x for x in content["pair"]["links"]
    )
    # The keys' bias has no gradient but rounding; it was found out and is judged apart.
    assert any("in_proj_bias[16:32]" in item["tensor"] for item in content["numerics"]["tensors"])


@pytest.mark.slow
def test_recurrent_network_in_linen_from_jaxs_first_values(tmp_path: Path) -> None:
    content = run(tmp_path, f"{EXAMPLES}/recurrent", code=0)
    check_proven(content)
    assert content["pair"]["init"] == "jax"
    assert any(
        "cell.from_input.weight[0:16] <-> OptimizedLSTMCell_0.ii.kernel" in x
        for x in content["pair"]["links"]
    )


@pytest.mark.slow  # Runs of both sides; README's commands make the like.
def test_the_planted_mistake_is_found_and_the_first_tensor_named(tmp_path: Path) -> None:
    content = run(tmp_path, f"{EXAMPLES}/planted_mistake", code=1)
    first = content["numerics"]["first_divergence"]
    assert content["verdict"] == "DIFFERENT"
    assert (first["step"], first["phase"], first["tensor"]) == (0, "grad", "3.bias")
    # The mistake is none of the map's.
    assert content["pair"]["proven"] is True


@pytest.mark.slow
def test_a_timed_pair_has_speeds_and_bench_takes_it(tmp_path: Path) -> None:
    words = (
        f"bench {EXAMPLES}/toy_mlp --baselines torch:eager,jax:jit --windows 2 --steps-per-window 2 --steps 3"
    )
    done = subprocess.run(
        command(f"{words} --json -"),
        cwd=tmp_path,
        env=environ(**LITTLE_LLVM),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["bench"]
    assert {(row["side"], row["mode"]) for row in rows} == {
        ("torch", "eager"),
        ("torch", "baseline:eager"),
        ("jax", "jit"),
        ("jax", "baseline:jit"),
    }


@pytest.mark.slow
def test_two_devices_take_shares_of_the_same_rows(tmp_path: Path) -> None:
    one = run(tmp_path, f"{EXAMPLES}/toy_mlp --steps 3", code=0)
    two = run(tmp_path, f"{EXAMPLES}/toy_mlp --steps 3 --devices 2", code=0)
    assert one["runs"][0]["problem_sha256"] == two["runs"][0]["problem_sha256"]
    losses = [
        [float(loss) for _, loss in sorted(content["numerics"]["loss"]["first"].items())]
        for content in (one, two)
    ]
    # Two halves of a float32 sum round otherwise than the whole; another row would move it by far more.
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    for side in ("torch", "jax"):
        assert rows_of_steps(tmp_path, 1, side) == rows_of_steps(tmp_path, 2, side)


def rows_of_steps(folder: Path, number: int, side: str) -> list[str]:
    """The digest of the rows of all ranks, step by step."""
    (taken,) = folder.glob(f"runs/{number:04d}_*/passes/*_{side}_run")
    ranks = [list(record.read_lines(file)) for file in taken.glob("steps.rank*.jsonl")]
    assert len(ranks) == number
    return [add_digests(line["batch_digest"] for line in lines) for lines in zip(*ranks, strict=True)]
