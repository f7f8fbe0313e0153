"""`parity explain` and `parity power` under the real command line, on mistakes that stand in real files."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.parity.conftest import check_schema
from tests.parity.explained.conftest import PAIRS, run


def result(folder: Path) -> dict[str, Any]:
    content = json.loads(next(folder.glob("runs/0001_*/result.json")).read_text())
    check_schema(content)
    return content


@pytest.mark.slow  # A run and some forty passes; README's commands show the like.
def test_two_mistakes_on_the_jax_side_are_named_with_their_mends(tmp_path: Path) -> None:
    run(tmp_path, "run toy-mlp --steps 6 --no-time --edit jax:clip_eps=1e-2 --edit jax:weight_decay=0.03", 1)
    done = run(tmp_path, "explain last", 0)
    found = result(tmp_path)["explanation"]
    assert (found["outcome"], found["edits"]) == ("confirmed", ["clip_eps=0.01", "weight_decay=0.03"])
    assert [step["first"].split()[0] for step in found["steps"]] == ["clipped", "param"]
    assert all(step["after"] <= 1e-12 < step["before"] for step in found["steps"])
    assert done.stdout.startswith("CONFIRMED  torch with clip_eps=0.01 and weight_decay=0.03 is jax")
    assert "AdamW(weight_decay=0.03)" in done.stdout
    assert found["reproduction"] is None


@pytest.mark.slow
def test_tiny_is_explained_in_its_forward_pass_and_beyond(tmp_path: Path) -> None:
    """A whole GPT on both sides, twice."""
    words = "run tiny --steps 6 --devices 1 --no-time --edit jax:gelu_erf=1 --edit jax:clip_eps=1e-3"
    run(tmp_path, words, 1)
    run(tmp_path, "explain last", 0)
    assert result(tmp_path)["explanation"]["edits"] == ["gelu_erf=1", "clip_eps=0.001"]


@pytest.mark.slow
def test_three_clashes_of_defaults_are_peeled(tmp_path: Path) -> None:
    """Two launches a side and about a hundred passes."""
    run(tmp_path, f"run {PAIRS / 'statistics'} --no-time", 1)
    run(tmp_path, "explain last", 0)
    found = result(tmp_path)["explanation"]
    assert found["outcome"] == "confirmed"
    assert set(found["edits"]) == {"conv_padding=1", "batchnorm_momentum=0.01", "batchnorm_biased=1"}


@pytest.mark.slow  # Two runs of 75 steps on both sides, one of them in float64.
def test_what_begins_late_is_followed_to_where_it_begins(tmp_path: Path) -> None:
    run(tmp_path, f"run {PAIRS / 'late'} --no-time --edit jax:clip_eps=3", 4)
    run(tmp_path, "explain last", 0)
    found = result(tmp_path)["explanation"]
    assert (found["outcome"], found["edits"]) == ("confirmed", ["clip_eps=3"])
    assert found["steps"][0]["first"].startswith("clipped of step 71")


@pytest.mark.slow  # A run and some forty passes; README's commands show the like.
def test_power_tells_what_a_run_could_not_have_seen(tmp_path: Path) -> None:
    """Without clipping in any step, with a constant rate, one micro-batch and no norm in the model."""
    run(tmp_path, "run toy-mlp --steps 4 --no-time --precision f64", 0)
    run(tmp_path, "power last", 0)
    power = result(tmp_path)["power"]
    rows = {row["edit"].split("=")[0]: row for row in power["rows"]}
    assert rows["weight_decay"]["caught"] and rows["weight_decay"]["where"].startswith("param of step 0")
    assert rows["loss_scale"]["caught"] and rows["grad_scale"]["where"].startswith("grad of step 0")
    assert rows["schedule_offset"]["caught"] is False
    assert rows["schedule_offset"]["where"].startswith("not catchable: it changes no bit of this run")
    assert rows["layernorm_eps"]["caught"] is None and rows["layernorm_eps"]["where"].startswith(
        "the model has no"
    )
    assert rows["dropout"]["caught"] is None
    assert power["caught"] == sum(row["caught"] is True for row in power["rows"]) >= 10
