"""What became of a capture, as plain data for `capture.json`, and a drawing of the graph beside it.

Must not: measure; it gathers what the parts have recorded.
"""

import os
from pathlib import Path
from typing import Any

import torch

from spec import record
from torch_impl.graph.picture import draw
from torch_impl.graph.shapes import ShapeGraph
from torch_impl.graph.whole_step import WholeStep


def describe(step: WholeStep) -> dict[str, Any]:
    """The record of a captured step: JSON values alone."""
    # Compilers work in the first run; that is `compile_s`.
    warm_up_s = step.counts.warm_up_s - step.counts.first_run_s
    return {
        "graphs": [_describe_shape(shape) for shape in step.shapes],
        "program_sha256": [shape.view.sha256() for shape in step.shapes if shape.view is not None],
        "pool_bytes": pool_bytes(step.pool),
        "driver_bytes": sum(s.executable.driver_bytes for s in step.shapes if s.executable),
        "ledger": {"pointers": len(step.ledger.entries), "bytes": step.ledger.num_bytes()},
        "capture_s": warm_up_s + sum(shape.capture_s for shape in step.shapes),
        "warm_up_s": warm_up_s,
        "first_run_s": step.counts.first_run_s,
        "state_checksum": dict(step.checksums),
        "uses_torch_generator": step.uses_generator,
        "eager_steps": step.counts.eager,
        "input_slots": step.options.input_slots,
        "metric_slots": step.options.metric_slots,
        "nccl_graph_mixing_support": os.environ.get("NCCL_GRAPH_MIXING_SUPPORT"),
        "nccl_nvls_enable": os.environ.get("NCCL_NVLS_ENABLE"),
    }


def write(step: WholeStep, folder: Path, at_capture: dict[str, Any] | None) -> None:
    """Writes `capture.json`, what was recorded at capture with what has been counted since, and `capture.svg`
    for the first graph."""
    record.write_json(folder / "capture.json", (at_capture or {}) | describe(step))
    if step.shapes and step.shapes[0].view is not None:
        record.write_text(folder / "capture.svg", draw(step.shapes[0].view))


def pool_bytes(pool: Any) -> int:
    """Device memory that torch's allocator holds for a pool of graphs."""
    segments = torch.cuda.memory_snapshot()
    return sum(s["total_size"] for s in segments if tuple(s.get("segment_pool_id", ())) == tuple(pool))


def _describe_shape(shape: ShapeGraph) -> dict[str, Any]:
    executable, view = shape.executable, shape.view
    assert executable is not None and view is not None, "only captured shapes are kept"
    leaves = [{"path": x.path, "shape": x.shape, "dtype": str(x.dtype)} for x in shape.layout.leaves]
    return {
        "batch": leaves,
        "nodes_by_kind": view.by_kind(),
        "edges": len(view.edges),
        "straight_line": view.is_straight(),
        "rewritten": dict(shape.rewrite.rewritten),
        "not_kernels": dict(shape.rewrite.left),
        "collectives": [
            {"name": row["name"], "node": row["node"], "compute_beside": len(row["beside"])}
            | {"beside_names": row["beside_names"]}
            for row in view.overlap()
        ],
        "launched_by": executable.way,
        "launches_per_step": shape.launches_per_step,
        "refusals": executable.refusals,
        "instantiate_s": executable.instantiate_s,
        "driver_bytes": executable.driver_bytes,
        "inputs": type(shape.inputs).__name__,
    }
