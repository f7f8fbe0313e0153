"""A rounding that XLA could leave out on a GPU: made under every profile, left out where that is planted."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.parity.conftest import run_in

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
PAIR = f"{ROOT}/tests/corpus/p13_excess_precision/cast_sum"
WHERE = "--no-time --device cuda --devices 1 --mode torch=eager,jax=jit"


def test_a_cast_before_a_sum_is_made(tmp_path: Path) -> None:
    """On a CPU a library drops it whatever the flag says; see the case. XLA's own kernels obey."""
    run_in(tmp_path, f"run {PAIR} {WHERE}")


def test_with_leave_it_is_left_out_and_the_flag_named(tmp_path: Path) -> None:
    run_in(tmp_path, f"run {PAIR} {WHERE} --edit jax:excess_precision=1", 1)
    printed = run_in(tmp_path, "explain last").stdout
    content: dict[str, Any] = json.loads(next(tmp_path.glob("runs/0001_*/result.json")).read_text())
    assert content["explanation"]["attribution"]["carried_by"][0] == "jax compiler"
    assert "xla_allow_excess_precision carries it" in printed
