"""A benchmark on a GPU: contenders start from the initial state, clocks are seen beside them, memory too."""

from pathlib import Path

import pytest

from parity.speed import conditions
from tests.parity.test_end_to_end import run

pytestmark = pytest.mark.gpu


def test_every_contender_is_timed_from_the_initial_state_with_its_clocks(tmp_path: Path) -> None:
    words = "bench tiny --devices 1 --precision bf16 --baselines all --windows 10 --steps-per-window 20"
    content = run(tmp_path, words, code=0)
    rows = {(row["side"], row["mode"]): row for row in content["bench"]}
    assert {
        ("torch", "graph+inductor"),
        ("torch", "baseline:reduce-overhead"),
        ("jax", "baseline:jit"),
    } <= set(rows)
    for row in rows.values():
        assert row["speed"]["initial_state"] is True
        assert row["speed"]["step_ms"]["n"] == 20 and row["speed"]["peak_mem_bytes"] > 0
    assert rows["torch", "graph+inductor"]["ratio_to_peer"]["median"] < 1
    samples = conditions.read(next((tmp_path / "runs").glob("0001_*")) / "launches")
    clocks = [gpu["sm_mhz"] for item in samples if item["kind"] == "gpus" for gpu in item["gpus"]]
    assert len(clocks) > 10 and min(clocks) > 100
    assert not [one for one in content["warnings"] if one["kind"] == "GPU shared"]


def test_a_sweep_finds_what_the_host_costs(tmp_path: Path) -> None:
    """Eager launches of a small step wait for the host until the batch is large."""
    words = (
        "bench micro --devices 1 --backend torch --mode torch=graph,torch=eager --sweep batch=1,2,8,64,128"
    )
    sweep = run(tmp_path, words, code=0)["sweep"]
    (model,) = sweep["model"]
    assert model["host_ms"]["eager"] > 2 * (model["host_ms"]["graph"] or 0)
    assert model["device_ms_per_row"] > 0
    (crossing,) = sweep["crossings"]
    assert crossing["below"] == "torch graph"
