"""WholeStep: a training step as one CUDA graph, called with a host batch, launched by one call.

    step = WholeStep(forms, state, device)
    step.capture(example_batch)          # the state is afterwards as it was
    number = step(batch)                 # one slot written, one graph launched
    loss, *others = step.metrics(number) # waits for that step alone, without a CUDA call

The step is any function of a batch on the device that changes its state in place and leaves its metrics in
one tensor. Must not: know what the step computes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from spec.errors import RuleError
from torch_impl.graph import kernels, teardown
from torch_impl.graph.capture import CaptureRefused, capture, explain, warm_up
from torch_impl.graph.driver import DriverError
from torch_impl.graph.forms import DeviceStep, Forms, Options, State
from torch_impl.graph.handshake import Handshake
from torch_impl.graph.ledger import Ledger
from torch_impl.graph.neutral import SavedState, generator_offset
from torch_impl.graph.rings import MetricsRing
from torch_impl.graph.shapes import ShapeGraph, capture_shape, make_inputs, step_body


class Staged(Protocol):
    """A batch that was staged, with what launches its step."""

    def launch(self) -> None:
        """Puts the step on the device."""
        ...


@dataclass(frozen=True)
class _EagerStep:
    """A step whose batch has no graph."""

    step: DeviceStep
    batch: Any
    publish: kernels.Launch
    stream: torch.cuda.Stream

    def launch(self) -> None:
        with torch.cuda.stream(self.stream):
            self.step(self.batch)
        self.publish.run(self.stream)


@dataclass
class Counts:
    """What was done, for the record."""

    eager: int = 0
    """Steps whose shape has no graph."""
    warm_up_s: float = 0.0
    """Seconds of all warm-ups, saving and putting back included."""
    first_run_s: float = 0.0
    """Of these, the first runs, in which compilers work."""


class WholeStep:
    """See the top of this file.

    Args:
      forms: the step.
      state: what it changes.
      device: the GPU; steps are launched on the stream that is current here now.
      handshake: over the ranks that reduce together; None for one process.
    """

    def __init__(
        self,
        forms: Forms,
        state: State,
        device: torch.device,
        handshake: Handshake | None = None,
        options: Options | None = None,
    ) -> None:
        self.options, self.counts = options or Options(), Counts()
        self._forms, self._state = forms, state
        self._handshake = handshake or Handshake(0, 1, None)
        self._launch_stream = torch.cuda.current_stream(device)
        self._capture_stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()
        self._tick = torch.zeros((), dtype=torch.int64, device=device)
        self.num_steps = 0
        """Steps dispatched; the device counts the same in its own memory."""
        self._ring = self._new_ring(self.options.metric_slots)
        self.shapes: list[ShapeGraph] = []
        self.ledger = Ledger(self._pointers)
        self.checksums: dict[str, str] = {}
        """Of the lasting state before the last warm-up and after it."""
        self.uses_generator = False
        """Whether the step draws from torch's own random generator."""
        self._afterwards: list[Callable[[], None]] = []

    def capture(self, example: Any) -> ShapeGraph:
        """Captures the step for batches such as this one, on all ranks or on none; the state stays.

        Raises:
          CaptureRefused: some rank cannot, with every rank's reason; nothing is left of the attempt.
          RuleError: the example is not a batch.
        """
        shape = make_inputs(example, self.options.input_slots, self._launch_stream, self.options.staged_bytes)
        shape.fill(example)
        pointers = Ledger(self._pointers)
        self._together(lambda: self._rehearse(shape, pointers))
        body = step_body(shape, self._forms.captured, self._state.metrics, self._ring, self._tick)
        streams = (self._capture_stream, self._launch_stream)
        try:
            self._together(lambda: capture_shape(shape, body, *streams, self.pool, self.uses_generator))
        except CaptureRefused:
            shape.close()
            raise
        self.shapes.append(shape)
        self.ledger = Ledger(self._pointers)
        teardown.on_close(self, self.close)
        return shape

    def __call__(self, batch: Any) -> int:
        """Dispatches one step and returns its number; see `stage`."""
        self.launch(self.stage(batch))
        return self.num_steps - 1

    def stage(self, batch: Any) -> "Staged":
        """First half of a step: puts a batch where the next launch reads it.

        Waits while `input_slots` steps are on their way, since the slot is still to be read.

        Raises:
          RuleError: the batch fits no graph and could pass for one by broadcasting, or differs in more than
            its shapes.
        """
        number = self.num_steps
        if number >= self.options.input_slots:
            # The step that read this slot before is over once its metrics, or later ones, are there.
            self._ring.wait(number - self.options.input_slots + 1)
        shape = self.shapes[0]
        if len(self.shapes) > 1:
            shape = next((s for s in self.shapes if s.layout.has_shapes_of(batch)), shape)
        try:
            shape.inputs.write(number, batch)
        except RuleError:
            # Right shapes with a wrong dtype or device are a mistake; other shapes may be meant.
            if shape.layout.has_shapes_of(batch):
                raise
            return self._stage_odd(batch)
        return shape

    def launch(self, staged: "Staged") -> None:
        """Second half: the one call that launches what was staged last."""
        staged.launch()
        self.num_steps += 1

    def metrics(self, number: int | None = None) -> list[float]:
        """Metrics of a step, the last when None; waits for that step, without a CUDA call.

        Raises:
          LookupError: more than `metric_slots` steps were dispatched since.
        """
        number = self.num_steps - 1 if number is None else number
        assert 0 <= number < self.num_steps, f"step {number} of {self.num_steps}"
        return self._ring.read(number + 1)

    @property
    def device(self) -> torch.device:
        """The GPU it runs on."""
        return self._tick.device

    def rewind(self) -> None:
        """Back to step 0, once nothing is on its way; for a step that was launched only to be measured."""
        torch.cuda.synchronize(self.device)
        self._tick.zero_()
        self._ring.forget()
        self.num_steps = 0
        torch.cuda.synchronize(self.device)

    def agree(self, failure: str | None) -> list[str]:
        """The failures of all ranks, on all of them; none where no rank names one."""
        return self._handshake.failures(failure)

    def on_closed(self, function: Callable[[], None]) -> None:
        """Has a function called once the graphs are gone: their communicator's end."""
        self._afterwards.append(function)

    def close(self) -> None:
        """Lets go of executables and graphs; to be called before the communicator ends, and called for you by
        `teardown.close_graphs`."""
        teardown.closed(self)
        if self.shapes and self.num_steps:
            # Bounded: where another rank died, the last step may never end.
            deadline = time.perf_counter() + 10
            while not self._ring.over(self.num_steps) and time.perf_counter() < deadline:
                time.sleep(1e-3)
        for shape in self.shapes:
            shape.close()
        self.shapes = []
        while self._afterwards:
            self._afterwards.pop()()

    def _stage_odd(self, batch: Any) -> "Staged":
        """A batch that no ring took: its step runs eagerly where its shapes alone are other ones."""
        layout = self.shapes[0].layout
        layout.check_other(batch)
        if not self._handshake.alone:
            # The others may launch their graph meanwhile, and its reduction would wait for this rank's.
            raise RuleError(
                "Several ranks step together, each on a shape that was captured.",
                "a batch whose shapes no graph has",
                "capture this shape on all ranks, or pad the rows",
            )
        self.counts.eager += 1
        last = kernels.publish(self._ring.slots, self._state.metrics, self._tick)
        with torch.cuda.stream(self._launch_stream):
            # Copied where it is read, so that the step cannot overtake the copy.
            on_device = layout.to_device(batch, self.device)
        return _EagerStep(self._forms.eager, on_device, last, self._launch_stream)

    def _rehearse(self, shape: ShapeGraph, pointers: Ledger) -> None:
        """Runs and captures the step without its reduction, so that what fails fails here; puts all back."""
        started, device = time.perf_counter(), self.device
        saved = SavedState(self._state.lasting(), device)
        offset = generator_offset(device)
        # Its own counter and ring: numbers of a warm-up must not be taken for a step's.
        ring, tick = self._new_ring(2), torch.zeros_like(self._tick)
        body = step_body(shape, self._forms.local, self._state.metrics, ring, tick)
        try:
            self.counts.first_run_s += warm_up(body, self._capture_stream)
            self.uses_generator |= generator_offset(device) != offset
            if self._forms.local is not self._forms.captured:
                capture(body, self._capture_stream, torch.cuda.graph_pool_handle()).reset()
        finally:
            torch.cuda.synchronize(device)
            self.checksums = {"before": saved.checksum, "after": saved.put_back()}
            self.counts.warm_up_s += time.perf_counter() - started
        assert self.checksums["before"] == self.checksums["after"], self.checksums
        if moved := pointers.moved():
            raise CaptureRefused("warm-up replaced what the graph must find again: " + "; ".join(moved[:4]))

    def _together(self, attempt: Callable[[], None]) -> None:
        """Makes an attempt on every rank; it fails on all where it fails on one."""
        failure: str | None = None
        cause: Exception | None = None
        try:
            attempt()
        except (CaptureRefused, DriverError) as error:
            failure, cause = str(error), error
        except Exception as error:
            failure, cause = explain(error, "capture"), error
        failures = self._handshake.failures(failure)
        if failures:
            raise CaptureRefused("; ".join(failures)) from cause

    def _new_ring(self, num_slots: int) -> MetricsRing:
        metrics, device = self._state.metrics, self.device
        stalled = lambda: torch.cuda.synchronize(device)  # noqa: E731
        return MetricsRing(len(metrics), metrics.dtype, num_slots, device, stalled, self.options.stall_s)

    def _pointers(self) -> dict[str, Tensor]:
        """Everything that a captured graph reads and writes, by name."""
        found = {**self._state.pointers(), "metrics": self._state.metrics, "tick": self._tick}
        found["metrics_ring"] = self._ring.slots
        for i, shape in enumerate(self.shapes):
            found |= {f"batch[{i}]": shape.static_row, f"input_ring[{i}]": shape.inputs.slots}
        return found
