"""Makes a captured graph one of kernels alone: memset and plain device-to-device memcpy nodes become kernels.

A graph of kernels alone is launched in time that hardly grows with its nodes; one memset among them costs
that. The new node takes the old one's edges, so order and result stay. What cannot be rewritten stays and
is named. Must not: change what the graph computes.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torch_impl.graph import kernels
from torch_impl.graph.driver import call, driver
from torch_impl.graph.nodes import graph_handle, handles, kind_of


@dataclass
class Rewrite:
    """What was done to a graph."""

    rewritten: Counter[str] = field(default_factory=Counter)
    """Nodes turned into kernels, by the kind that they were."""
    left: Counter[str] = field(default_factory=Counter)
    """Nodes that are not kernels and stayed, by kind and reason."""


def to_kernels(raw_graph: int, device_index: int) -> Rewrite:
    """Rewrites a graph in place; it must not have been instantiated yet."""
    done = Rewrite()
    for handle in handles(raw_graph):
        kind = kind_of(handle)
        if kind == "kernel":
            continue
        launch, reason = _as_kernel(handle, kind)
        if launch is None:
            done.left[f"{kind}: {reason}"] += 1
        else:
            _replace(graph_handle(raw_graph), handle, launch.node_params(device_index))
            done.rewritten[kind] += 1
    return done


def _as_kernel(handle: Any, kind: str) -> tuple[kernels.Launch | None, str]:
    """The kernel that does what the node does, or None and why there is none."""
    if kind == "memset":
        return memset_kernel(call("cuGraphMemsetNodeGetParams", handle)), ""
    if kind == "memcpy":
        return memcpy_kernel(call("cuGraphMemcpyNodeGetParams", handle))
    return None, "no kernel does this"


def memset_kernel(params: Any) -> kernels.Launch:
    """From `CUDA_MEMSET_NODE_PARAMS`: element size 1, 2 or 4, width in elements, pitch unused in one row."""
    size = int(params.elementSize)
    value = int(params.value) & ((1 << 8 * size) - 1)
    pattern = value * {1: 0x01010101, 2: 0x00010001, 4: 1}[size]
    width, height = int(params.width) * size, int(params.height)
    return kernels.fill(int(params.dst), int(params.pitch), width, height, pattern)


def memcpy_kernel(params: Any) -> tuple[kernels.Launch | None, str]:
    """From `CUDA_MEMCPY3D`: one row from device to device becomes a kernel."""
    types = driver().CUmemorytype
    plain = (types.CU_MEMORYTYPE_DEVICE, types.CU_MEMORYTYPE_UNIFIED)
    if params.srcMemoryType not in plain or params.dstMemoryType not in plain:
        return None, f"{params.srcMemoryType.name} to {params.dstMemoryType.name}"
    if int(params.Height) > 1 or int(params.Depth) > 1:
        return None, "more than one row"
    source = int(params.srcDevice) + int(params.srcXInBytes)
    to = int(params.dstDevice) + int(params.dstXInBytes)
    return kernels.copy(to, source, int(params.WidthInBytes)), ""


def _replace(graph: Any, handle: Any, params: Any) -> None:
    """Puts a kernel node where another node was, with the same nodes before and after it."""
    before = _neighbours("cuGraphNodeGetDependencies", handle)
    after = _neighbours("cuGraphNodeGetDependentNodes", handle)
    new = call("cuGraphAddKernelNode", graph, before, len(before), params)
    if after:
        call("cuGraphAddDependencies", graph, [new] * len(after), after, None, len(after))
    call("cuGraphDestroyNode", handle)


def _neighbours(function: str, handle: Any) -> list[Any]:
    *_, count = call(function, handle, 0)
    nodes, *_ = call(function, handle, count)
    return list(nodes[:count])
