"""A file that switches 64 bits off: refused in a float64 run, undone where a narrower run is asked about."""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from jax_impl.models.pair import load_side
from spec.errors import RuleError
from spec.workloads.pair import PairFiles
from tests.spec.pair_problem import pair_problem

SIDE = """
import jax

jax.config.update("jax_enable_x64", False)


def build(): ...


def loss(model, batch): ...
"""
PROBLEM = pair_problem(precision="f64")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[str]:
    """The side's file, in a process that works in float64 until the test is over."""
    path = tmp_path / "jax_side.py"
    path.write_text(SIDE)
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    yield str(path)
    jax.config.update("jax_enable_x64", before)


def test_a_run_in_float64_refuses_it(file: str) -> None:
    with pytest.raises(RuleError) as caught:
        load_side(PairFiles(torch="", jax=file, computes="float64"), PROBLEM)
    assert "switches jax_enable_x64 off" in caught.value.numbers


def test_float64_about_a_narrower_run_undoes_it(file: str) -> None:
    load_side(PairFiles(torch="", jax=file, computes="float32"), PROBLEM)
    assert jax.config.read("jax_enable_x64")
