"""Does a traced step run what the side recorded of its graph or program, kind by kind?

Must not: judge; a difference is a row of the result.
"""

from collections.abc import Sequence
from typing import Any

from parity.report.traced import NodeCount
from parity.speed.spans import Step, is_graph_launch

_NODE_KINDS = {"kernel": ("kernel", "collective"), "memcpy": ("memcpy",), "memset": ("memset",)}
"""Kinds of a graph's nodes that a device spends time on, and what they are in a trace."""


def match(side: str, capture: dict[str, Any] | None, steps: Sequence[Step]) -> tuple[list[NodeCount], str]:
    """What was recorded beside what was traced, in one training step.

    Args:
      capture: of the manifest of the traced pass.

    Returns:
      Rows; where there are none, the reason.
    """
    if not steps or not any(step.work for step in steps):
        return [], "nothing was traced on a device"
    found = _of_graph(capture or {}, steps) if side == "torch" else _of_program(capture or {}, steps)
    return found, "" if found else "the side recorded no graph and no command buffer of its step"


def _of_graph(capture: dict[str, Any], steps: Sequence[Step]) -> list[NodeCount]:
    """A captured graph's nodes, and the calls that launch it and its inputs.

    The driver may run a memset between kernels as a kernel, so with memsets the sum alone is exact.
    """
    graphs = capture.get("graphs") or []
    if len(graphs) != 1:
        return []
    nodes = {kind: count for kind in _NODE_KINDS if (count := graphs[0]["nodes_by_kind"].get(kind, 0))}
    exact = "memset" not in nodes
    rows = [
        _row("graph launches", 1, _graph_launches(steps), exact=True),
        _row("launches", graphs[0]["launches_per_step"], _launches(steps), exact=True),
        *(
            _row(f"{kind} nodes", n, _in_graphs(steps, *_NODE_KINDS[kind]), exact)
            for kind, n in nodes.items()
        ),
    ]
    return rows if exact else [*rows, _row("timed nodes", sum(nodes.values()), _in_graphs(steps), exact=True)]


def _of_program(capture: dict[str, Any], steps: Sequence[Step]) -> list[NodeCount]:
    """An XLA program's command buffers and thunks. A thunk of a library's can be several kernels."""
    ledger = capture.get("command_buffers")
    if not ledger:
        return []
    launches = ledger["launches"]
    rows = [
        _row(
            "graph launches",
            ledger["command_buffers"],
            _graph_launches(steps),
            exact=not ledger["host_loops"],
        ),
        _row("work in graphs, thunks", ledger["thunks_in"], _in_graphs(steps), exact=False),
    ]
    if launches is not None:
        rows.append(_row("launches, thunks", launches, _launches(steps), exact=False))
    return rows


def _row(kind: str, recorded: float, traced: float, exact: bool) -> NodeCount:
    return NodeCount(kind=kind, recorded=recorded, traced=traced, agree=recorded == traced if exact else None)


def _launches(steps: Sequence[Step]) -> float:
    return sum(len(step.launches) for step in steps) / _number(steps)


def _graph_launches(steps: Sequence[Step]) -> float:
    calls = (launched.call for step in steps for launched in step.launches)
    return sum(map(is_graph_launch, calls)) / _number(steps)


def _in_graphs(steps: Sequence[Step], *kinds: str) -> float:
    """What ran in one step as a node of a graph, of these kinds or of any."""
    work = (span for step in steps for span in step.work if span.graph_node is not None)
    return sum(span.kind in kinds or not kinds for span in work) / _number(steps)


def _number(steps: Sequence[Step]) -> int:
    return sum(step.steps for step in steps)
