"""A trace small enough to work out by hand: three steps of a captured step with one copy beside it.

Step 5 is dropped. In steps 6 and 7 the runtime's launch of a graph has the driver's inside it, which the
device's work names; another thread copies; an all-reduce runs partly beside a kernel.
"""

from spec.trace import DeviceSpan, HostSpan, Program, Trace, TracedStep

PROGRAM = Program("p" * 64, "s" * 64)

HOST = (
    HostSpan("cudaGraphLaunch", 10, 5, "launch", 1, 1),
    HostSpan("cudaEventSynchronize", 60, 30, "sync", 1, 90),
    HostSpan("cudaGraphLaunch", 110, 8, "launch", 1, 2),
    HostSpan("cuGraphLaunch", 112, 4, "launch", 1, 3),
    HostSpan("cudaMemcpyAsync", 111, 2, "launch", 2, 4),
    HostSpan("cudaGraphLaunch", 205, 6, "launch", 1, 5),
    HostSpan("cuGraphLaunch", 206, 4, "launch", 1, 6),
    HostSpan("cudaMemcpyAsync", 208, 2, "launch", 2, 7),
)

DEVICE = (
    DeviceSpan("gemm", 20, 10, "kernel", 0, 7, 1, 1),
    DeviceSpan("gemm", 120, 20, "kernel", 0, 7, 3, 1),
    DeviceSpan("norm", 130, 20, "kernel", 0, 7, 3, 2),
    DeviceSpan("ncclDevKernel_AllReduce", 145, 25, "collective", 0, 8, 3, 3),
    DeviceSpan("Memset", 172, 2, "memset", 0, 7, 3, 4),
    DeviceSpan("Memcpy HTOD", 180, 5, "memcpy", 0, 9, 4),
    DeviceSpan("gemm", 210, 20, "kernel", 0, 7, 6, 1),
    DeviceSpan("norm", 220, 30, "kernel", 0, 7, 6, 2),
    DeviceSpan("ncclDevKernel_AllReduce", 240, 20, "collective", 0, 8, 6, 3),
    DeviceSpan("Memset", 262, 2, "memset", 0, 7, 6, 4),
    DeviceSpan("Memcpy HTOD", 270, 5, "memcpy", 0, 9, 7),
)

TRACE = Trace(
    steps=(TracedStep(5, 0, 40), TracedStep(6, 100, 140), TracedStep(7, 200, 240)),
    host=HOST,
    device=DEVICE,
    instrument="cupti",
    reason=None,
    device_name="NVIDIA H200",
    program=PROGRAM,
)
