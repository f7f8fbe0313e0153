"""One graph for one shape of batch, with the ring that feeds it; all graphs of a step share one pool.

Must not: decide which shapes get a graph, or count steps; `whole_step.py` does.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torch_impl.graph import kernels
from torch_impl.graph.capture import capture
from torch_impl.graph.launch import Executable, instantiate, instantiate_for_replay
from torch_impl.graph.layout import BatchLayout
from torch_impl.graph.nodes import GraphView, walk
from torch_impl.graph.rewrite import Rewrite, to_kernels
from torch_impl.graph.rings import InputRing, MetricsRing
from torch_impl.graph.staging import StagedRing


@dataclass
class ShapeGraph:
    """A captured step for batches of one layout."""

    inputs: InputRing | StagedRing
    static_row: Tensor
    """The bytes of the batch that the step reads, filled by its first kernel."""
    batch: Any
    """The same as a batch: views of `static_row`."""
    captured: torch.cuda.CUDAGraph | None = None
    executable: Executable | None = None
    view: GraphView | None = None
    rewrite: Rewrite = field(default_factory=Rewrite)
    capture_s: float = 0.0

    @property
    def layout(self) -> BatchLayout:
        """The layout of its batches."""
        return self.inputs.layout

    @property
    def launches_per_step(self) -> int:
        """Calls that put work on the device, for one step."""
        assert self.executable is not None
        return self.executable.launches_per_step + self.inputs.launches_per_write

    def fill(self, example: Any) -> None:
        """Puts a batch into every slot, so that whichever a warm-up reads holds one."""
        for slot in range(self.inputs.num_slots):
            self.inputs.write(slot, example)

    def launch(self) -> None:
        """Puts a step on the device; its batch was written before."""
        assert self.executable is not None, "not captured, or closed"
        self.executable.launch()

    def close(self) -> None:
        """Lets go of the executable, then of the graph."""
        if self.executable is not None:
            self.executable.destroy()
            self.executable = None
        if self.captured is not None:
            self.captured.reset()
            self.captured = None


def make_inputs(example: Any, num_slots: int, stream: torch.cuda.Stream, staged_bytes: int) -> ShapeGraph:
    """The ring and the static batch for batches such as `example`; nothing is captured yet."""
    layout, device = BatchLayout(example), stream.device
    if layout.row_bytes > staged_bytes:
        inputs: InputRing | StagedRing = StagedRing(layout, num_slots, stream)
    else:
        inputs = InputRing(layout, num_slots, device)
    static_row = torch.zeros(layout.row_bytes, dtype=torch.uint8, device=device)
    return ShapeGraph(inputs, static_row, layout.unflatten(static_row))


def step_body(
    shape: ShapeGraph, step: Callable[[Any], None], metrics: Tensor, ring: MetricsRing, tick: Tensor
) -> Callable[[], None]:
    """What one launch does: take the batch of this tick, make the step, publish the metrics."""
    first = kernels.gather(shape.static_row, shape.inputs.slots, tick)
    last = kernels.publish(ring.slots, metrics, tick)

    def body() -> None:
        first.run(torch.cuda.current_stream())
        step(shape.batch)
        last.run(torch.cuda.current_stream())

    return body


def capture_shape(
    shape: ShapeGraph,
    body: Callable[[], None],
    capture_stream: torch.cuda.Stream,
    launch_stream: torch.cuda.Stream,
    pool: Any,
    uses_generator: bool,
) -> None:
    """Captures the body, makes it kernels alone, and instantiates it.

    Args:
      uses_generator: whether the step draws from torch's random generator, so that torch must launch it.

    Raises:
      CaptureRefused: the body cannot be captured.
      DriverError: the driver refuses the graph.
    """
    started = time.perf_counter()
    graph = capture(body, capture_stream, pool)
    shape.captured = graph
    index = launch_stream.device.index
    shape.rewrite = to_kernels(graph.raw_cuda_graph(), index)
    shape.view = walk(graph.raw_cuda_graph())
    make = instantiate_for_replay if uses_generator else instantiate
    shape.executable = make(graph, launch_stream)
    shape.capture_s = time.perf_counter() - started
