"""`parity run --trace` on a CPU, where the frameworks' own profilers see the host's part of real steps."""

import json
from pathlib import Path

import pytest

from parity.speed import perfetto, tracing
from spec import trace
from tests.parity.conftest import Parity

# Three to five launches of frameworks, the last under a profiler.
pytestmark = pytest.mark.slow


def test_a_traced_run_has_real_spans_of_the_timed_program(parity: Parity, tmp_path: Path) -> None:
    printed = parity("run toy-mlp --steps 3 --trace").stdout
    (folder,) = (tmp_path / "runs").glob("0001_*")
    result = json.loads((folder / "result.json").read_text())
    for side, instrument, operation in (
        ("torch", "kineto", "aten::"),
        ("jax", "jax.profiler", "PjitFunction"),
    ):
        speed = result["speed"][side]
        told, found = speed["trace"], trace.read(folder / "passes" / speed["trace"]["folder"])
        assert (told["instrument"], found.instrument, found.device_name) == (instrument, instrument, "cpu")
        assert told["same_program"] and told["same_end_state"]
        assert len(found.steps) == 10 and told["steps"] == 6
        for step in found.steps:
            inside = [s for s in found.host if step.begin_us <= s.begin_us <= step.end_us]
            assert any(span.name.startswith(operation) and span.duration_us > 0 for span in inside)
        assert all(speed[name] is None and "CPU" in speed["reasons"][name] for name in tracing.FIGURES)
        drawn = folder / "passes" / told["folder"] / perfetto.FILE
        assert json.loads(drawn.read_text())["traceEvents"]
        assert str(drawn.relative_to(tmp_path)) in printed


def test_of_two_ranks_the_first_is_traced(parity: Parity, tmp_path: Path) -> None:
    parity("run toy-mlp --steps 2 --devices 2 --backend torch --trace")
    (folder,) = (tmp_path / "runs").glob("0001_*")
    told = json.loads((folder / "result.json").read_text())["speed"]["torch"]["trace"]
    assert told["same_program"] and told["same_end_state"]
    written = {file.name for file in (folder / "passes" / told["folder"]).glob("*.json")}
    assert {"trace.json", "digest.rank1.json"} <= written and "trace.rank1.json" not in written
