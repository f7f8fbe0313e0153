"""What was traced becomes a file on a clock of its own; a trace that saw no kernel on a GPU is a failure."""

import dataclasses
from pathlib import Path

import pytest

from spec import record, trace
from spec.errors import ExitCode, RuleError
from spec.job import Job, Timing
from spec.presets import run_spec
from spec.run import Execution
from spec.trace import DeviceSpan, HostSpan, TracedStep
from spec.worker.tracing import Found, TraceFailed, write


def a_job(out: Path, device: str = "cuda", **changes: int) -> Job:
    mode = "graph" if device == "cuda" else "eager"
    spec = run_spec("toy-mlp", execution=Execution(device=device, torch_mode=mode, jax_mode="jit"))
    timing = Timing(**changes)
    return Job(side="torch", purpose="trace", spec=spec, mode=mode, steps=3, out=str(out), timing=timing)


def finished(folder: Path, program: str = "x") -> Path:
    manifest = {
        "mode_ran": "graph",
        "facts": {"compiler_options": None},
        "capture": {"program_sha256": program},
        "environment": {"gpus": [{"name": "NVIDIA H200"}]},
    }
    record.write_json(folder / "manifest.json", manifest)
    record.write_json(folder / "digest.rank0.json", {"step": 3, "param": "p"})
    return folder


HOST = (
    HostSpan("cudaLaunchKernel", 990.0, 5.0, "launch", 1),
    HostSpan("cudaLaunchKernel", 1010.0, 5.0, "launch", 1),
)
FOUND = Found(
    instrument="cupti",
    reason=None,
    steps=(TracedStep(4, 1000.0, 1050.0), TracedStep(5, 1100.0, 1150.0)),
    host=HOST,
    device=(DeviceSpan("gemm", 1020.0, 5.0, "kernel", 0, 7), DeviceSpan("gemm", 995.0, 5.0, "kernel", 0, 7)),
)


def test_a_trace_begins_with_its_first_step(tmp_path: Path) -> None:
    write(a_job(finished(tmp_path)), FOUND, rank=0)
    read = trace.read(tmp_path)
    assert [step.begin_us for step in read.steps] == [0.0, 100.0]
    assert [span.begin_us for span in read.host] == [10.0], "what warm-up left is not of a step"
    assert [span.begin_us for span in read.device] == [20.0]
    assert read.device_name == "NVIDIA H200"
    assert read.program == trace.program_of(tmp_path)


def test_another_program_has_another_digest(tmp_path: Path) -> None:
    one, other = (trace.program_of(finished(tmp_path / name, name)) for name in ("x", "y"))
    assert one.sha256 != other.sha256
    assert one.end_state_sha256 == other.end_state_sha256


def test_no_kernel_on_a_gpu_is_a_failure_and_no_zero(tmp_path: Path) -> None:
    seen = Found(instrument="cupti", reason=None, steps=FOUND.steps, host=HOST, device=())
    with pytest.raises(TraceFailed, match="runs kernels") as raised:
        write(a_job(finished(tmp_path)), seen, rank=0)
    assert raised.value.code == ExitCode.CRASHED
    assert not (tmp_path / trace.FILE).exists()


def test_lost_marks_are_a_failure(tmp_path: Path) -> None:
    with pytest.raises(TraceFailed, match="0 of 10"):
        write(a_job(finished(tmp_path)), dataclasses.replace(FOUND, steps=()), rank=0)


def test_a_cpu_has_no_kernels_to_miss(tmp_path: Path) -> None:
    seen = Found(instrument="kineto", reason="no GPU", steps=FOUND.steps, host=HOST, device=())
    write(a_job(finished(tmp_path), "cpu"), seen, rank=0)
    assert trace.read(tmp_path).device_name == "cpu"
    write(a_job(tmp_path / "none", "cpu"), None, rank=1)
    assert not (tmp_path / "none").exists()


def test_a_trace_job_knows_how_many_launches_a_time_job_makes() -> None:
    timing = Timing(windows=3, calls=5)
    assert timing.launches(warmup=2, per_window=4, launch_calls=False) == 2 + 3 * 4 + 5
    assert timing.launches(warmup=2, per_window=4, launch_calls=True) == 2 + 3 * 4 + 5 + 5


def test_a_trace_of_two_steps_is_refused(tmp_path: Path) -> None:
    a_job(tmp_path, traced_steps=3)
    with pytest.raises(RuleError, match="three steps"):
        a_job(tmp_path, traced_steps=2)
