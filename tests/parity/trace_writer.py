"""Writes traces as a GPU would leave them, out of round numbers: what the tests of timelines read.

Nothing here was measured. A step launched call by call leaves gaps between its kernels; one launched as a
graph leaves none.
"""

from pathlib import Path

from spec import record, trace
from spec.trace import DeviceSpan, HostSpan, Program, Trace, TracedStep

KERNELS = 120
KERNEL_US = 2.5
CALL_US = 20.0
"""From one launch of an eager step to the next."""


def launched_one_by_one(num_steps: int = 3) -> Trace:
    """Steps of which each kernel is a launch of its own, and which then wait for the device."""
    length = KERNELS * CALL_US + 100.0
    host, device, steps = [], [], []
    for number in range(num_steps):
        start = number * length
        for index in range(KERNELS):
            at = start + 20.0 + index * CALL_US
            name, kind = _kernel(index)
            host.append(HostSpan("cudaLaunchKernel", at, 6.0, "launch", 1, index))
            device.append(DeviceSpan(name, at + 8.0, KERNEL_US, kind, 0, 7, index))
        host.append(HostSpan("cudaStreamSynchronize", start + length - 70.0, 40.0, "sync", 1))
        steps.append(TracedStep(number, start, start + length - 20.0))
    return _trace(steps, host, device)


def launched_as_a_graph(num_steps: int = 3) -> Trace:
    """Steps that are one launch; communication runs on a stream of its own beside the last kernels."""
    length = KERNELS * KERNEL_US + 40.0
    host, device, steps = [], [], []
    for number in range(num_steps):
        start = number * length
        host.append(HostSpan("cudaGraphLaunch", start + 4.0, 8.0, "launch", 1, number))
        for index in range(KERNELS):
            name, kind = _kernel(index)
            at = start + 14.0 + index * KERNEL_US
            device.append(DeviceSpan(name, at, KERNEL_US - 0.1, kind, 0, 7, number, index))
        device.append(
            DeviceSpan("ncclDevKernel_AllReduce", start + 200.0, 80.0, "collective", 0, 20, number, KERNELS)
        )
        steps.append(TracedStep(number, start, start + 30.0))
    return _trace(steps, host, device)


def operations_on_a_cpu() -> Trace:
    """A step without a device: operations of the framework, some inside others."""
    host = [HostSpan("aten::linear", 10.0, 50.0, "other", 1), HostSpan("aten::addmm", 15.0, 30.0, "other", 1)]
    return _trace([TracedStep(0, 0.0, 100.0)], host, [], name="cpu", instrument="kineto")


def write_pass(run: Path, number: int, side: str, mode: str, content: Trace) -> Path:
    """A trace pass of a run folder."""
    folder = run / "passes" / f"{number:03d}_{side}_trace"
    record.write_json(folder / "manifest.json", {"side": side, "purpose": "trace", "mode_asked": mode})
    trace.write(content, folder)
    return folder


def _kernel(index: int) -> tuple[str, str]:
    if index % 40 == 39:
        return "Memset (Device)", "memset"
    return f"{('gemm', 'softmax', 'layer_norm', 'adamw')[index % 4]}_kernel_{index}", "kernel"


def _trace(
    steps: list[TracedStep],
    host: list[HostSpan],
    device: list[DeviceSpan],
    *,
    name: str = "a GPU that was never there",
    instrument: str = "cupti",
) -> Trace:
    return Trace(
        steps=tuple(steps),
        host=tuple(host),
        device=tuple(device),
        instrument=instrument,
        reason=None if instrument == "cupti" else "this fixture has no GPU",
        device_name=name,
        program=Program(None, None),
    )
