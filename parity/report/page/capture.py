"""The page's pictures of what each side made of its step: the nodes of the graph, the ledger of the program.

Amounts become bars, the rest a list; names are the sides' own, so that what they add later is shown too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from parity.report.charts import bars
from parity.report.page.folder import RunFolder
from parity.report.page.picture import Picture, both
from parity.report.page.words import amount, bytes_
from parity.report.result import Result

_TITLES = {
    "nodes_by_kind": "Nodes of the captured graph, by kind",
    "rewritten": "Nodes that were rewritten as kernels",
    "memory_bytes": "Memory of the compiled program",
    "command_buffers": "Inside and outside of command buffers",
}
_WHAT = {"torch": "The step as PyTorch captured it", "jax": "The step as XLA compiled it"}


@dataclass(frozen=True)
class Side:
    """What one side recorded."""

    title: str
    pictures: list[Picture]
    rest: dict[str, Any]
    why_not: str
    updates: str
    """How often a traced step changed a graph; empty where that is not known."""


def section(result: Result, folder: RunFolder) -> list[Side]:
    """Both sides' captures; nothing where none was asked to record one."""
    if result.capture is None:
        return []
    found = []
    for side in ("torch", "jax"):
        content = getattr(result.capture, side) or _written(folder, side)
        if content:
            pictures, rest = _shown(content, "s0" if side == "torch" else "s1")
            found.append(Side(_WHAT[side], pictures, rest, "", _updates(result, side)))
        elif any(one.side == side for one in folder.passes):
            found.append(Side(_WHAT[side], [], {}, _why_not(result, folder, side), ""))
    return found


def _written(folder: RunFolder, side: str) -> dict[str, Any]:
    return next((one.capture for one in folder.passes if one.side == side and one.capture), {})


def _why_not(result: Result, folder: RunFolder, side: str) -> str:
    """The side's own reason where it gave one."""
    said = [one.manifest.get("reasons") or {} for one in folder.passes if one.side == side]
    own = next((reasons["capture"] for reasons in said if "capture" in reasons), None)
    assert result.capture is not None
    return own or result.capture.reasons.get(side) or "the side recorded none"


def _updates(result: Result, side: str) -> str:
    """What no capture can tell: it depends on where the arrays of each step lie."""
    speed = getattr(result.speed, side, None)
    if speed is None or speed.graph_updates_per_step is None:
        return ""
    calls = ", ".join(f"{name} {amount(count)}" for name, count in speed.graph_update_calls_by_api.items())
    counted = f"{amount(speed.graph_updates_per_step)} a step"
    return f"Launches of a graph that was changed since the launch before, as traced: {counted}" + (
        f" ({calls})." if calls else "."
    )


def _shown(content: Mapping[str, Any], style: str) -> tuple[list[Picture], dict[str, Any]]:
    """Pictures of the amounts in a capture and in its graphs, and what is left of it."""
    graphs = [graph for graph in content.get("graphs") or [] if isinstance(graph, dict)]
    pictures = [picture for part in (*graphs, content) for picture in _pictures(part, style)]
    rest = _rest(content)
    return pictures, rest | {"graphs": [_rest(graph) for graph in graphs]} if graphs else rest


def _pictures(content: Mapping[str, Any], style: str) -> Iterator[Picture]:
    for name, value in content.items():
        found = _amounts(name, value)
        if not found:
            continue
        write = bytes_ if name.endswith("bytes") else amount
        amounts = [(kind.replace("_", " "), float(count), write(count)) for kind, count in found.items()]
        title = _TITLES.get(name, name.replace("_", " "))
        told = ", ".join(f"{kind} {written}" for kind, _, written in amounts)
        draw = partial(bars.draw, amounts, style=style, title=title, description=f"{told}.")
        yield both(draw, f"{title}.")


def _amounts(name: str, value: Any) -> dict[str, int | float]:
    """Amounts of one kind, which can be drawn beside each other; empty where an entry holds none."""
    if not isinstance(value, dict):
        return {}
    counts = {
        kind: count
        for kind, count in value.items()
        if isinstance(count, int | float) and not isinstance(count, bool)
    }
    if name == "command_buffers":
        return {kind: count for kind, count in counts.items() if kind.endswith(("_in", "_out"))}
    alike = name in _TITLES or name.endswith(("_by_kind", "_bytes"))
    return counts if alike and len(counts) == len(value) else {}


def _rest(content: Mapping[str, Any]) -> dict[str, Any]:
    """What no picture shows, or not whole."""
    return {
        name: value
        for name, value in content.items()
        if name != "graphs" and (name == "command_buffers" or not _amounts(name, value))
    }
