"""What a CUDA graph may hold and what one launch of it costs the host, measured before building on it.

For each kind of node, with NCCL's graph mixing on and off, one all-reduce or eight bucketed ones on a second
stream, and each way to instantiate: accepted or refused, whether 1000 launches add up, and the median host
time of one launch on an idle queue. Probe one GPU with

    python benchmarks/graph_probe.py --out probe.jsonl

and two with torchrun, once as it is and once with NCCL_GRAPH_MIXING_SUPPORT=0 set:

    torchrun --nproc-per-node 2 benchmarks/graph_probe.py --out probe2.jsonl

With --trace the same cases are profiled instead: how many kernels CUPTI records for one launch. That is
another process on purpose: a profiler that was once attached slows every later launch of its process tenfold.
NVLink multicast should be off (NCCL_NVLS_ENABLE=0); the setting is recorded with the rest of the conditions.
"""

import argparse
import collections
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from cuda.bindings import runtime as cudart

NUM_KERNELS = 400
NUM_LAUNCHES = 1000
NUM_SAMPLES = 200
INSTANTIATE_FLAGS = {"plain": 0, "device_launch": 4, "node_priority": 8}


class MappedHost:
    """Pinned host memory seen as a CUDA array: kernels read and write it over the bus, with no copy node."""

    def __init__(self, pinned: torch.Tensor) -> None:
        self.pinned = pinned
        self.__cuda_array_interface__ = {
            "shape": tuple(pinned.shape),
            "typestr": {torch.float32: "<f4", torch.int64: "<i8"}[pinned.dtype],
            "data": (pinned.data_ptr(), False),
            "version": 3,
        }


@dataclass
class Case:
    """A body to capture; each run of it adds one to every element of `result`."""

    body: Callable[[], None]
    result: torch.Tensor
    counters: tuple[torch.Tensor, ...] = ()
    """Further tensors that start at zero."""

    def reset(self) -> None:
        """Back to the start, once the device is idle."""
        torch.cuda.synchronize()
        for tensor in (self.result, *self.counters):
            tensor.zero_()
        torch.cuda.synchronize()


def chain(x: torch.Tensor, count: int, total: float = 1.0) -> None:
    """A straight line of `count` one-block kernels that adds `total` to x."""
    for _ in range(count - 1):
        x.add_(0.0)
    x.add_(total)


def kernels(device: torch.device) -> Case:
    """Kernels alone."""
    x = torch.zeros(8, device=device)
    return Case(lambda: chain(x, NUM_KERNELS), x)


def memset(device: torch.device) -> Case:
    """Kernels with memset nodes between them."""
    x, y = torch.zeros(8, device=device), torch.ones(1 << 16, device=device)

    def body() -> None:
        for _ in range(10):
            checked(
                cudart.cudaMemsetAsync(y.data_ptr(), 0, y.nbytes, torch.cuda.current_stream().cuda_stream)
            )
            chain(x, NUM_KERNELS // 10, 0.1)

    return Case(body, x)


def memcpy_device(device: torch.device) -> Case:
    """Kernels and one device-to-device copy node."""
    x, y = torch.zeros(1 << 16, device=device), torch.zeros(1 << 16, device=device)

    def body() -> None:
        chain(x, NUM_KERNELS)
        y.copy_(x)

    return Case(body, y, (x,))


def memcpy_host_to_device(device: torch.device) -> Case:
    """Kernels and one copy node from pinned memory: how an input usually enters a graph."""
    one, x, y = torch.ones(8).pin_memory(), torch.zeros(8, device=device), torch.zeros(8, device=device)

    def body() -> None:
        y.copy_(one, non_blocking=True)
        chain(x, NUM_KERNELS, 0.0)
        x.add_(y)

    return Case(body, x, (y,))


def mapped_host(device: torch.device) -> Case:
    """Kernels of which the first reads and the last writes pinned memory."""
    pinned_in, pinned_out = torch.ones(8).pin_memory(), torch.zeros(8).pin_memory()
    source = torch.as_tensor(MappedHost(pinned_in), device=device)
    sink = torch.as_tensor(MappedHost(pinned_out), device=device)
    x = torch.zeros(8, device=device)

    def body() -> None:
        x.add_(source)
        chain(x, NUM_KERNELS, 0.0)
        torch.add(x, 0.0, out=sink)

    return Case(body, pinned_out, (x,))


def fork_join(device: torch.device) -> Case:
    """Kernels on two streams."""
    x, y, side = torch.zeros(8, device=device), torch.zeros(8, device=device), torch.cuda.Stream()

    def body() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            chain(y, NUM_KERNELS // 2)
        chain(x, NUM_KERNELS // 2)
        torch.cuda.current_stream().wait_stream(side)

    return Case(body, x, (y,))


def event_record(device: torch.device) -> Case:
    """Kernels and one event record node."""
    x, event = torch.zeros(8, device=device), torch.cuda.Event(external=True)

    def body() -> None:
        chain(x, NUM_KERNELS)
        event.record()

    return Case(body, x)


def all_reduce(device: torch.device, buckets: int) -> Case:
    """Bucketed all-reduces on a second stream while kernels go on."""
    x, total = torch.zeros(8, device=device), torch.zeros(8, device=device)
    parts = [torch.ones(1 << 14, device=device) for _ in range(buckets)]
    communication = torch.cuda.Stream()

    def body() -> None:
        for part in parts:
            part.fill_(1.0 / (buckets * dist.get_world_size()))
            chain(x, NUM_KERNELS // buckets)
            communication.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(communication):
                dist.all_reduce(part)
        torch.cuda.current_stream().wait_stream(communication)
        for part in parts:
            total.add_(part[:8])

    return Case(body, total, (x,))


CASES: dict[str, Callable[[torch.device], Case]] = {
    "kernels": kernels,
    "memset": memset,
    "memcpy_device": memcpy_device,
    "memcpy_host_to_device": memcpy_host_to_device,
    "mapped_host": mapped_host,
    "fork_join": fork_join,
    "event_record": event_record,
}
COLLECTIVE_CASES: dict[str, Callable[[torch.device], Case]] = {
    "all_reduce_1": lambda device: all_reduce(device, 1),
    "all_reduce_8_overlapped": lambda device: all_reduce(device, 8),
}


def capture(case: Case) -> torch.cuda.CUDAGraph:
    """Warms up and captures on one stream."""
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.stream(stream):
        for _ in range(3):
            case.body()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        case.body()
    return graph


def nodes_by_kind(graph: torch.cuda.CUDAGraph) -> dict[str, int]:
    """Node counts of the captured graph by the runtime's own names."""
    raw = cudart.cudaGraph_t(graph.raw_cuda_graph())
    _, _, count = checked(cudart.cudaGraphGetNodes(raw, 0))
    _, nodes, _ = checked(cudart.cudaGraphGetNodes(raw, count))
    kinds = (checked(cudart.cudaGraphNodeGetType(node))[1].name for node in nodes[:count])
    return dict(collections.Counter(kind.removeprefix("cudaGraphNodeType") for kind in kinds))


def checked(result: tuple) -> tuple:
    """The result of a runtime call, or an exception that names the error."""
    if result[0] != cudart.cudaError_t.cudaSuccess:
        raise RuntimeError(result[0].name)
    return result


def measure_launch(launch: Callable[[], object], case: Case) -> dict[str, Any]:
    """Host microseconds of one launch on an idle queue, and whether `NUM_LAUNCHES` add up."""
    case.reset()
    samples_us = []
    for _ in range(NUM_SAMPLES):
        torch.cuda.synchronize()
        started = time.perf_counter_ns()
        launch()
        samples_us.append((time.perf_counter_ns() - started) / 1e3)
    for _ in range(NUM_LAUNCHES - NUM_SAMPLES):
        launch()
    torch.cuda.synchronize()
    right = bool(((case.result - NUM_LAUNCHES).abs() <= 1e-3 * NUM_LAUNCHES).all())
    deciles = statistics.quantiles(samples_us, n=10)
    return {"right": right, "launch_us": statistics.median(samples_us), "p10": deciles[0], "p90": deciles[-1]}


def probe_case(case: Case) -> Iterator[dict[str, Any]]:
    """All ways to instantiate one body."""
    graph = capture(case)
    kinds = nodes_by_kind(graph)
    stream = torch.cuda.current_stream().cuda_stream
    for name, flags in INSTANTIATE_FLAGS.items():
        row: dict[str, Any] = {"instantiate": name, "nodes": kinds}
        try:
            started = time.perf_counter()
            raw = cudart.cudaGraph_t(graph.raw_cuda_graph())
            _, executable = checked(cudart.cudaGraphInstantiate(raw, flags))
            row["instantiate_ms"] = (time.perf_counter() - started) * 1e3
            checked(cudart.cudaGraphUpload(executable, stream))
            row |= measure_launch(lambda e=executable: checked(cudart.cudaGraphLaunch(e, stream)), case)
            checked(cudart.cudaGraphExecDestroy(executable))
        except RuntimeError as error:
            row["refused"] = str(error)
        yield row
    graph.instantiate()
    yield {"instantiate": "torch.replay", "nodes": kinds, **measure_launch(graph.replay, case)}
    graph.reset()


def trace_case(case: Case, launches: int = 3) -> Iterator[dict[str, Any]]:
    """Kernels that the profiler records for one launch, beside the nodes of the graph."""
    graph = capture(case)
    graph.replay()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(launches):
            graph.replay()
        torch.cuda.synchronize()
    on_device = [e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    kernels_seen = sum(not name.startswith(("Memcpy", "Memset")) for name in on_device)
    yield {"nodes": nodes_by_kind(graph), "recorded_kernels_per_launch": kernels_seen / launches}
    graph.reset()


def conditions(world_size: int) -> dict[str, Any]:
    """What the numbers hold for."""
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "world_size": world_size,
        "mixing": os.environ.get("NCCL_GRAPH_MIXING_SUPPORT", "default (1)"),
        "nvls": os.environ.get("NCCL_NVLS_ENABLE", "default"),
        "samples": NUM_SAMPLES,
        "launches": NUM_LAUNCHES,
    }


def main() -> None:
    """Probes every case; rank 0 prints and writes a line each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--trace", action="store_true")
    arguments = parser.parse_args()
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    if world_size > 1:
        dist.init_process_group("nccl", device_id=device)
        dist.all_reduce(torch.zeros(1, device=device))
    table = CASES | (COLLECTIVE_CASES if world_size > 1 else {})
    probe = trace_case if arguments.trace else probe_case
    with open(arguments.out if rank == 0 else os.devnull, "w") as out:
        for line in ({"conditions": conditions(world_size)}, *_rows(table, probe, device)):
            out.write(json.dumps(line) + "\n")
            out.flush()
            if rank == 0:
                print(line, flush=True)
    if world_size > 1:
        torch.cuda.synchronize()
        dist.destroy_process_group()


def _rows(
    table: dict[str, Callable[[torch.device], Case]],
    probe: Callable[[Case], Iterator[dict[str, Any]]],
    device: torch.device,
) -> Iterator[dict[str, Any]]:
    for name, make in table.items():
        try:
            for row in probe(make(device)):
                yield {"case": name, **row}
        except RuntimeError as error:
            yield {"case": name, "failed": f"{type(error).__name__}: {str(error)[:200]}"}


if __name__ == "__main__":
    main()
