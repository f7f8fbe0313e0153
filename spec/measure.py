"""What every figure of a run means, once.

Workers write raw samples and only the referee turns them into statistics; both read the definitions here, and
so do the console and the page. Must not: compute statistics.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One figure of `result.json`."""

    name: str
    unit: str
    """`ms`, `us`, `s`, `bytes`, or `1` for a count or a share."""
    meaning: str
    """What is measured, from where to where, in what condition of the device."""


_TABLE = (
    Figure(
        "step_ms",
        "ms",
        "Wall time from a fence before a window of back-to-back steps to a fence after it, divided by the "
        "steps of the window; a fence waits until the devices of the process are idle. The median over "
        "windows, the first of which begins with the state before warm-up. Rows are made before the "
        "window; putting them on the device and reading metrics are inside.",
    ),
    Figure(
        "launch_us",
        "us",
        "Host time inside the one call that launches the step (the launch of the graph, the execution of "
        "the XLA program), the device queue empty before it; where a launch makes several steps, its share "
        "of one. Null where a step is launched by many calls.",
    ),
    Figure(
        "dispatch_us",
        "us",
        "Host time from calling step(batch) to its return, the device queue empty before it. Staging of "
        "the batch and all Python of the step are inside, waiting for results is not; where a call makes "
        "several steps, its share of one.",
    ),
    Figure(
        "launch_calls_per_step",
        "1",
        "Calls of driver and runtime that put work on a device in one step (launches of kernels, graphs, "
        "copies and fills), counted in a trace from one step's call to the next one's, reading of metrics "
        "included; where one such call makes another, only the outer one counts. A process with several "
        "devices launches for all, and what follows is of the first. The mean over the traced steps but the "
        "first four, as in all that follow: an instrument takes milliseconds there to settle. Where a launch "
        "makes several steps, its share of one.",
    ),
    Figure(
        "launch_calls_by_api",
        "1",
        "launch_calls_per_step by the name of the function that was called.",
    ),
    Figure(
        "launch_api_us_per_step",
        "us",
        "Host time inside the calls that launch_calls_per_step counts, summed over one step. As traced: the "
        "instrument makes calls slower.",
    ),
    Figure(
        "graph_updates_per_step",
        "1",
        "Launches of a graph (a command buffer of XLA's) in one step before which the launching thread had "
        "changed a graph since its last such launch: XLA does where an address that a command buffer holds "
        "has moved. A graph that is made anew is none of them. Null where not every call was recorded.",
    ),
    Figure(
        "graph_update_calls_by_api",
        "1",
        "Calls of driver and runtime that changed graphs before those launches, in one step, by the name of "
        "the function; as in launch_calls_per_step only outer ones. Empty where none was made.",
    ),
    Figure(
        "kernels_per_step",
        "1",
        "Kernels that a device ran in one step, those inside graphs included; copies and fills do not count.",
    ),
    Figure(
        "device_busy_ms",
        "ms",
        "Length of the union of the intervals in which a device ran a kernel, copy or fill, in one traced "
        "step; work that overlaps counts once. The median.",
    ),
    Figure(
        "device_idle_share",
        "1",
        "1 - device_busy_ms / span, where the span of a step is taken from the SAME trace: from the "
        "beginning of its first device activity to that of the next step's first (for the last step, to the "
        "end of its last). Of all counted steps together.",
    ),
    Figure(
        "gap_us",
        "us",
        "Time between the end of all that a device runs and the beginning of the next thing that it runs, "
        "within and between the counted steps: median, 90th percentile and largest gap, how "
        "many a step has, and the share of the span that they take.",
    ),
    Figure(
        "exposed_communication_ms",
        "ms",
        "Time of one step in which a device runs collectives and no other kernel beside them; waiting for "
        "the other ranks inside a collective counts. The median.",
    ),
    Figure(
        "launch_latency_us",
        "us",
        "From the beginning of a launching call to the beginning of the first thing on the device that it "
        "caused, for those calls at which the device had nothing left to run: what waits behind other work "
        "is left out.",
    ),
    Figure(
        "mfu",
        "1",
        "Model floating-point operations of one device's share of a step, by the formula of the workload "
        "(recomputation does not count), divided by step_ms and by the dense peak of that device and "
        "dtype.",
    ),
    Figure(
        "peak_mem_bytes",
        "bytes",
        "Most device memory that the framework's allocator had handed out at one time, from the start of "
        "the process to the end of its last step, on rank 0; in a data-parallel run every rank holds as "
        "much. The least over passes, since a process counts what it timed before too. What the allocator "
        "keeps in reserve does not count.",
    ),
    Figure(
        "compile_s",
        "s",
        "Wall time from handing over the uncompiled step until the compiled one can run: tracing, "
        "lowering, compiling and tuning, but no capture. Caches of earlier runs shorten it; the manifest "
        "tells which were on.",
    ),
    Figure(
        "capture_s",
        "s",
        "Wall time of warm-up, capture and instantiation of the graph, from saving the state to putting "
        "it back.",
    ),
)

FIGURES = {figure.name: figure for figure in _TABLE}
"""Every figure of a side by its name, in the order of a report."""


_HOPPER_SXM = {"float64": 66.9e12, "float32": 66.9e12, "tf32": 494.7e12, "bfloat16": 989.4e12}
_AMPERE = {"float64": 19.5e12, "float32": 19.5e12, "tf32": 156e12, "bfloat16": 312e12}

PEAK_FLOPS = {
    "NVIDIA H200": _HOPPER_SXM,
    "NVIDIA H100 80GB HBM3": _HOPPER_SXM,
    "NVIDIA H100 PCIe": {"float64": 51.2e12, "float32": 51.2e12, "tf32": 378e12, "bfloat16": 756e12},
    "NVIDIA A100-SXM4-80GB": _AMPERE,
    "NVIDIA A100-SXM4-40GB": _AMPERE,
    "NVIDIA A100 80GB PCIe": _AMPERE,
    "NVIDIA A100-PCIE-40GB": _AMPERE,
}
"""Peak floating-point operations a second by exact device name and dtype of the matrix products' inputs.

Dense figures at boost clock, from NVIDIA's H100 and A100 architecture white papers and data sheets; the H200
has the H100's chip. Where a data sheet counts 2:4 sparsity, half its figure stands here. float64 is the peak
of tensor cores, float32 (IEEE) that of the ordinary cores: that is where such products run.
"""


def mfu(model_flops: float, step_ms: float, device: str, dtype: str) -> tuple[float | None, str | None]:
    """Model FLOPs utilisation and None, or None and the reason why it cannot be told.

    Args:
      model_flops: operations of ONE device's share of a step.
      device: the exact name that the driver gives; a name that merely looks alike has another peak.
      dtype: of the inputs of matrix products: `float64`, `float32`, `tf32` or `bfloat16`.
    """
    peaks = PEAK_FLOPS.get(device)
    if peaks is None:
        return None, f"no peak known for the device {device!r}; known: {', '.join(PEAK_FLOPS)}"
    if dtype not in peaks:
        return None, f"no peak known for {dtype} on the device {device!r}; known: {', '.join(peaks)}"
    return model_flops / (step_ms * 1e-3) / peaks[dtype], None
