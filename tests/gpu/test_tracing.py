"""Traced steps on a GPU by CUPTI: a captured step is one launch, an eager one a launch a kernel."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parity.cluster import Cluster
from parity.commands import side_commands
from parity.launch import launch
from parity.speed import provenance, traces
from parity.speed.spans import Parted
from spec import trace
from spec.job import Job, Timing
from spec.presets import run_spec
from spec.run import Execution
from tests.parity.conftest import command, environ

pytestmark = pytest.mark.gpu
TIMING = Timing(warmup_steps=5, windows=2, steps_per_window=10, calls=5)


def traced(folder: Path, side: str, mode: str, devices: int = 1, by_cupti: bool = True) -> tuple[Path, Path]:
    """A timed and a traced pass of toy-mlp, each in processes of its own."""
    modes = {"torch_mode": "graph", "jax_mode": "jit"} | {f"{side}_mode": mode}
    execution = Execution(device="cuda", **modes)  # type: ignore[arg-type]
    spec = run_spec("toy-mlp", steps=3, devices=devices, execution=execution)
    passes = []
    for purpose in ("time", "trace"):
        out = folder / purpose
        job = Job(side=side, purpose=purpose, spec=spec, mode=mode, steps=3, out=str(out), timing=TIMING)
        with_tracer = by_cupti and purpose == "trace"
        commands = side_commands(side, [job.write()], "cuda", devices, Cluster(), with_tracer)
        ended = launch(commands, [out], folder / f"{purpose}.log", timeout_s=200)
        assert ended.how == "done", (ended.error, ended.log_tail)
        passes.append(out)
    return passes[0], passes[1]


def figures(timed: Path, traced: Path, instrument: str = "cupti") -> dict[str, Any]:
    """The figures of a trace, which is the timed step's."""
    found = trace.read(traced)
    assert found.instrument == instrument, found.reason
    if instrument == "cupti":
        assert Parted(found).unmatched == 0, "work on a device names the call that launched it"
    proof = provenance.compare(found.program, [trace.program_of(timed)])
    assert proof.refusal == ""
    values, reasons = traces.read(traced, [timed])
    assert values["device_busy_ms"] > 0, reasons
    assert 0 <= values["device_idle_share"] < 1
    return values


@pytest.fixture(scope="module", autouse=True)
def cupti() -> None:
    pytest.importorskip("cupti", reason="pip install -e '.[gpu]'")


@pytest.fixture(scope="module", autouse=True)
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """XLA's processes choose the same kernels, or a traced program would be another than the timed one."""
    kept = f"--xla_gpu_per_fusion_autotune_cache_dir={tmp_path_factory.mktemp('autotuned')}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} {kept}".strip())
        yield


def test_a_captured_step_is_one_launch_of_every_node(tmp_path: Path) -> None:
    found = figures(*traced(tmp_path, "torch", "graph"))
    assert found["launch_calls_per_step"] == 1.0, found["launch_calls_by_api"]
    assert [name for name in found["launch_calls_by_api"] if "GraphLaunch" in name]
    rows = {row.kind: row for row in found["trace"].nodes}
    assert all(row.agree for row in rows.values()), rows
    assert found["kernels_per_step"] == rows["kernel nodes"].recorded


def test_an_eager_step_launches_kernel_by_kernel(tmp_path: Path) -> None:
    found = figures(*traced(tmp_path, "torch", "eager"))
    assert found["launch_calls_per_step"] >= found["kernels_per_step"] > 1
    assert not any("Graph" in name for name in found["launch_calls_by_api"])
    assert found["launch_latency_us"].p50 > 0, "a small step leaves the device idle between launches"


def test_a_program_launches_its_command_buffers(tmp_path: Path) -> None:
    found = figures(*traced(tmp_path, "jax", "jit"))
    assert found["kernels_per_step"] > 1
    rows = {row.kind: row for row in found["trace"].nodes}
    assert rows["graph launches"].agree, rows


@pytest.mark.parametrize(
    ("side", "mode", "own"), [("torch", "eager", "kineto"), ("jax", "jit", "jax.profiler")]
)
def test_the_framework_s_own_profiler_sees_as_many_kernels(
    tmp_path: Path, side: str, mode: str, own: str
) -> None:
    by_cupti = figures(*traced(tmp_path / "cupti", side, mode))
    by_own = figures(*traced(tmp_path / "own", side, mode, by_cupti=False), instrument=own)
    assert by_own["kernels_per_step"] == by_cupti["kernels_per_step"]


@pytest.mark.multigpu
@pytest.mark.parametrize(("side", "mode"), [("torch", "graph"), ("jax", "jit")])
def test_two_ranks_show_what_of_communication_nothing_covers(tmp_path: Path, side: str, mode: str) -> None:
    found = figures(*traced(tmp_path, side, mode, devices=2))
    assert 0 <= found["exposed_communication_ms"] <= found["device_busy_ms"]


def test_the_command_fills_every_figure_of_a_device(tmp_path: Path) -> None:
    words = command("run toy-mlp --steps 3 --devices 1 --trace")
    done = subprocess.run(words, cwd=tmp_path, env=environ(), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kernels_per_step" in done.stdout and "trace.perfetto.json" in done.stdout
