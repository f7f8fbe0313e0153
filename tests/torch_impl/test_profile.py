"""Kineto's events as spans: those of a GPU as Kineto writes them, those of this machine as it really does."""

import pytest
import torch

from spec.trace import DeviceSpan, HostSpan, TracedStep
from torch_impl.profile import Profiler, found


def event(category: str, name: str, begin: float, lasts: float, **told: object) -> dict[str, object]:
    place = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 9}
    return place | {"ts": begin, "dur": lasts, "args": told}


EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    event("user_annotation", "parity_step 6", 300.0, 100.0),
    event("user_annotation", "parity_step 5", 100.0, 50.0),
    event("user_annotation", "Optimizer.step", 310.0, 10.0),
    event("cpu_op", "aten::mm", 101.0, 30.0),
    event("cuda_runtime", "cudaLaunchKernel", 110.0, 4.5, correlation=77),
    event("cuda_runtime", "cudaDeviceSynchronize", 140.0, 9.0, correlation=78),
    event("kernel", "gemm", 120.0, 12.25, device=0, stream=7, correlation=77, **{"graph node id": 3}),
    event("kernel", "ncclDevKernel_AllReduce", 133.0, 1.0, device=0, stream=8, correlation=77),
    event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 135.0, 1.0, device=0, stream=7, correlation=79),
    event("gpu_memset", "Memset (Device)", 137.0, 1.0, device=0, stream=7, correlation=80),
    event("gpu_user_annotation", "parity_step 5", 120.0, 12.0),
]


def test_events_of_a_gpu_become_spans() -> None:
    spans = found(EVENTS, "why")
    assert (spans.instrument, spans.reason) == ("kineto", "why")
    assert spans.steps == (TracedStep(5, 100.0, 150.0), TracedStep(6, 300.0, 400.0))
    assert spans.host == (
        HostSpan("aten::mm", 101.0, 30.0, "other", 9),
        HostSpan("cudaLaunchKernel", 110.0, 4.5, "launch", 9, 77),
        HostSpan("cudaDeviceSynchronize", 140.0, 9.0, "sync", 9, 78),
    )
    assert spans.device == (
        DeviceSpan("gemm", 120.0, 12.25, "kernel", 0, 7, 77, 3),
        DeviceSpan("ncclDevKernel_AllReduce", 133.0, 1.0, "collective", 0, 8, 77),
        DeviceSpan("Memcpy HtoD (Pinned -> Device)", 135.0, 1.0, "memcpy", 0, 7, 79),
        DeviceSpan("Memset (Device)", 137.0, 1.0, "memset", 0, 7, 80),
    )


@pytest.mark.slow  # starting Kineto imports a good part of torch
def test_what_runs_here_is_seen_inside_its_step() -> None:
    profiler = Profiler("a test")
    values = torch.ones(64, 64)
    profiler.start()
    for number in (3, 4):
        with profiler.step(number):
            values @ values
    spans = profiler.stop()
    assert [step.number for step in spans.steps] == [3, 4]
    for step in spans.steps:
        names = [s.name for s in spans.host if step.begin_us <= s.begin_us <= step.end_us]
        assert names.count("aten::mm") == 1
    assert spans.device == ()
