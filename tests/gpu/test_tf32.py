"""A product that one side makes in TF32: the edge that carries it is that side's arithmetic, and is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.parity.conftest import run_in

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]


def test_tf32_on_the_jax_side_alone(tmp_path: Path) -> None:
    """The JAX side of the pair asks for the device's default product, whatever the profile says."""
    words = f"run {ROOT}/tests/corpus/p12_tf32 --no-time --device cuda --devices 1 --mode torch=eager,jax=jit"
    run_in(tmp_path, words, 1)
    printed = run_in(tmp_path, "explain last").stdout
    content: dict[str, Any] = json.loads(next(tmp_path.glob("runs/0001_*/result.json")).read_text())
    found = content["explanation"]["attribution"]
    edges = {edge["edge"]: edge for edge in found["edges"]}
    assert found["carried_by"][0] == "jax precision"
    assert 2.0**-13 < edges["jax precision"]["rms_rel"] < 2.0**-9
    assert edges["torch precision"]["word"] == "clean"
    assert "jax_default_matmul_precision" in printed
