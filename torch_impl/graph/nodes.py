"""What a captured graph holds: nodes by kind, edges, kernel names, and what may run beside each collective.

`walk` reads a graph through the driver; `GraphView` is plain data and needs no GPU. Must not: change the
graph.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch_impl.graph.driver import DriverError, call

COLLECTIVE = "nccl"
"""In the name of every kernel of NCCL's."""


@dataclass(frozen=True)
class Node:
    """One node: its kind in the driver's words (kernel, memset, event_record ...); a kernel's name."""

    kind: str
    name: str = ""

    @property
    def is_collective(self) -> bool:
        """Whether it is a kernel of NCCL's."""
        return self.kind == "kernel" and COLLECTIVE in self.name.lower()


@dataclass(frozen=True)
class GraphView:
    """Nodes in the driver's order (that of their capture) and edges as pairs of their indices."""

    nodes: Sequence[Node]
    edges: Sequence[tuple[int, int]]

    def by_kind(self) -> dict[str, int]:
        """Number of nodes of each kind."""
        return dict(Counter(node.kind for node in self.nodes))

    def sha256(self) -> str:
        """Hash of what the graph runs, in which order: one that another process captured can be the same."""
        content = [[[node.kind, node.name] for node in self.nodes], sorted(map(list, self.edges))]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def collectives(self) -> list[int]:
        """Indices of NCCL's kernels."""
        return [i for i, node in enumerate(self.nodes) if node.is_collective]

    def unordered(self, index: int) -> list[int]:
        """Nodes that may run beside node `index`: no path leads from one to the other, either way."""
        ordered = self._reach(index, self._successors) | self._reach(index, self._predecessors) | {index}
        return [i for i in range(len(self.nodes)) if i not in ordered]

    def overlap(self) -> list[dict[str, Any]]:
        """For each collective its name and the compute kernels that are not ordered with it."""
        rows = []
        for index in self.collectives:
            beside = [
                i
                for i in self.unordered(index)
                if self.nodes[i].kind == "kernel" and not self.nodes[i].is_collective
            ]
            names = [self.nodes[i].name for i in beside]
            rows.append(
                {"node": index, "name": self.nodes[index].name, "beside": beside, "beside_names": names[:8]}
            )
        return rows

    def levels(self) -> list[int]:
        """For each node the length of the longest path that leads to it: its earliest place in time."""
        levels = [0] * len(self.nodes)
        waiting = [len(before) for before in self._predecessors]
        ready = [i for i, count in enumerate(waiting) if not count]
        while ready:
            index = ready.pop()
            for after in self._successors[index]:
                levels[after] = max(levels[after], levels[index] + 1)
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)
        return levels

    def is_straight(self) -> bool:
        """Whether every node has at most one before and one after it."""
        return all(len(after) <= 1 for after in self._successors) and all(
            len(before) <= 1 for before in self._predecessors
        )

    @cached_property
    def _successors(self) -> list[list[int]]:
        return self._neighbours(self.edges)

    @cached_property
    def _predecessors(self) -> list[list[int]]:
        return self._neighbours((to, source) for source, to in self.edges)

    def _neighbours(self, edges: Iterable[tuple[int, int]]) -> list[list[int]]:
        lists: list[list[int]] = [[] for _ in self.nodes]
        for source, to in edges:
            lists[source].append(to)
        return lists

    @staticmethod
    def _reach(start: int, neighbours: list[list[int]]) -> set[int]:
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            for index in neighbours[waiting.pop()]:
                if index not in seen:
                    seen.add(index)
                    waiting.append(index)
        return seen


def handles(raw_graph: int) -> list[Any]:
    """The driver's node handles of a graph."""
    graph = graph_handle(raw_graph)
    _, count = call("cuGraphGetNodes", graph, 0)
    nodes, _ = call("cuGraphGetNodes", graph, count)
    return list(nodes[:count])


def graph_handle(raw_graph: int) -> Any:
    """The driver's handle of a graph that torch captured (`CUDAGraph.raw_cuda_graph()`)."""
    from torch_impl.graph.driver import driver

    return driver().CUgraph(raw_graph)


def kind_of(handle: Any) -> str:
    """The kind of a node: `kernel`, `memset`, `memcpy`, `event_record` ..."""
    return call("cuGraphNodeGetType", handle).name.removeprefix("CU_GRAPH_NODE_TYPE_").lower()


def walk(raw_graph: int) -> GraphView:
    """Reads a graph."""
    found = handles(raw_graph)
    index = {int(handle): i for i, handle in enumerate(found)}
    kinds = [kind_of(handle) for handle in found]
    nodes = [
        Node(kind, _kernel_name(handle) if kind == "kernel" else "")
        for kind, handle in zip(kinds, found, strict=True)
    ]
    graph = graph_handle(raw_graph)
    *_, count = call("cuGraphGetEdges", graph, 0)
    sources, targets, *_ = call("cuGraphGetEdges", graph, count)
    pairs = zip(sources[:count], targets[:count], strict=True)
    return GraphView(nodes, [(index[int(a)], index[int(b)]) for a, b in pairs])


def _kernel_name(handle: Any) -> str:
    """The name of a kernel node's function, as the compiler mangled it; empty where the driver has none."""
    params = call("cuGraphKernelNodeGetParams", handle)
    try:
        if int(params.func):
            return call("cuFuncGetName", params.func).decode()
        return call("cuKernelGetName", params.kern).decode()
    except DriverError:
        return ""
