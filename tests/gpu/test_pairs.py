"""A user's pair on a GPU: its whole step is one captured graph, and the verdict is the same as on a CPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "parity", *f"run {words} --device cuda --devices 1 --json -".split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=290, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("mode", ["graph", "graph+inductor"])
@pytest.mark.parametrize("example", ["conv_net", "encoder"])
def test_an_example_is_captured_whole(tmp_path: Path, example: str, mode: str) -> None:
    """In strict, cuDNN and cuBLAS must be deterministic for both models; running statistics are state too."""
    content = run(tmp_path, f"{ROOT}/examples/{example} --steps 10 --mode torch={mode}")
    assert content["verdict"] == "SAME" and content["pair"]["proven"] is True
    assert content["speed"]["torch"]["mode"] == mode, content["speed"]["torch"]["reasons"]
    assert content["capture"]["torch"] is not None
    assert content["speed"]["torch"]["launch_us"]["n"] > 0
    captures = sorted(tmp_path.glob("runs/0001_*/passes/*torch*/capture.json"))
    assert captures and all(
        json.loads(path.read_text())["graphs"][0]["nodes_by_kind"].keys() == {"kernel"} for path in captures
    )
