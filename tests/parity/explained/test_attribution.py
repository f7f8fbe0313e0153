"""Which edge carries a difference: measured on written passes, and found where it really is planted."""

from pathlib import Path
from typing import Any

import pytest

from parity.attribution.edges import Comparison
from parity.attribution.passes import Made
from parity.judge.align import Measured
from tests.parity.explained.conftest import PAIRS, run
from tests.parity.explained.test_commands import result
from tests.parity.lockstep_writer import Sides
from tests.parity.test_lockstep import scaled, zero_gradient_with


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Passes that round as they may, but for jit, which scales one gradient by 1.001 in the profile."""
    root = tmp_path_factory.mktemp("passes")
    Sides(root / "clean").rows()
    Sides(root / "off", jax_profile=scaled("grad", "wpe.weight", 1.001)).rows()
    folders = {
        "torch float64": root / "clean" / "torch_f64",
        "torch eager": root / "clean" / "torch",
        "jax float64": root / "clean" / "jax_f64",
        "jax nojit": root / "clean" / "jax",
        "jax jit": root / "off" / "jax",
    }
    return Comparison(Made(0, {way: Measured(way, folder) for way, folder in folders.items()}))


def test_a_clean_edge_is_a_few_floors(comparison: Comparison) -> None:
    for edge in (
        ("torch float64", "torch eager"),
        ("jax float64", "jax nojit"),
        ("torch eager", "jax nojit"),
    ):
        found = comparison.apart(*edge)
        assert found is not None and 0 < found.floors < comparison.bound, edge


def test_the_edge_that_carries_stands_out_at_its_tensor(comparison: Comparison) -> None:
    found = comparison.apart("jax nojit", "jax jit")
    assert found is not None and found.floors > 100 * comparison.bound
    assert found.where == "grad, wpe.weight" and found.rms_rel == pytest.approx(1e-3, rel=1e-2)
    assert found.value["jax jit"] == pytest.approx(1e-3, rel=1e-2) and found.value["jax nojit"] < 1e-6


def test_truths_are_one_meaning_and_what_was_not_run_has_no_number(comparison: Comparison) -> None:
    truths = comparison.apart("torch float64", "jax float64")
    assert truths is not None and truths.equal and truths.floors < 1e-6
    assert comparison.apart("torch eager", "torch inductor") is None


@pytest.mark.parametrize(("beside", "equal"), [(0.0, True), (1e-10, False)])
def test_what_adam_makes_of_rounding_is_no_other_meaning(tmp_path: Path, beside: float, equal: bool) -> None:
    Sides(tmp_path, precision="bf16", jax=zero_gradient_with(5e-21, beside)).rows()
    ways = {"torch float64": "torch_f64", "torch eager": "torch", "jax float64": "jax_f64", "jax jit": "jax"}
    passes = {way: Measured(way, tmp_path / folder) for way, folder in ways.items()}
    found = Comparison(Made(0, passes)).apart("torch float64", "jax float64")
    assert found is not None and found.equal == equal and found.floors < 1


def edges(folder: Path) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    found = result(folder)["explanation"]["attribution"]
    return {edge["edge"]: edge for edge in found["edges"]}, found


@pytest.mark.slow  # A run, a search and ten passes.
def test_a_difference_of_torchs_compiler_alone(tmp_path: Path) -> None:
    run(tmp_path, f"run {PAIRS / 'compiled_torch'} --no-time --mode torch=inductor", 1)
    done = run(tmp_path, "explain last", 0)
    by_name, found = edges(tmp_path)
    assert found["carried_by"] == ["torch compiler"]
    assert "in float64 too" in by_name["torch compiler"]["reason"]
    words = {name: edge["word"] for name, edge in by_name.items() if name != "torch capture"}
    assert words == dict.fromkeys(words, "clean") | {"torch compiler": "carries"}
    capture = by_name["torch capture"]
    assert capture["floors"] is None and "no GPU" in capture["reason"]
    assert "CHARGED  torch compiler carries it" in done.stdout


@pytest.mark.slow  # As above.
def test_a_difference_of_xlas_compiler_alone(tmp_path: Path) -> None:
    run(tmp_path, f"run {PAIRS / 'traced_jax'} --no-time", 1)
    run(tmp_path, "explain last", 1)
    by_name, found = edges(tmp_path)
    assert found["carried_by"] == ["jax compiler"]
    assert by_name["jax compiler"]["between"] == ["jax nojit", "jax jit"]
    assert by_name["semantics"]["word"] == by_name["torch compiler"]["word"] == "clean"
