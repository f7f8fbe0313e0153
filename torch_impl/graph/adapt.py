"""From the trainer's step and arena to a captured whole step: the one place that knows both.

Must not: compute anything of the step; it chooses how the step reduces, and captures.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torch_impl.graph.buckets import Overlap, plan_buckets
from torch_impl.graph.capture import CaptureRefused
from torch_impl.graph.communicator import Communicator
from torch_impl.graph.forms import DeviceStep, Forms, Options
from torch_impl.graph.handshake import default_handshake
from torch_impl.graph.plan import Plan, choose
from torch_impl.graph.report import describe
from torch_impl.graph.whole_step import WholeStep
from torch_impl.memory import Arena
from torch_impl.step import Step

_captures = 0
"""Captures of this process so far: ranks count alike, so it names a handshake on all of them."""


@dataclass
class Captured:
    """A step as one graph, and how it came to be."""

    step: WholeStep
    plan: Plan
    measured_ms: dict[str, float]
    """Milliseconds a step of each plan that was tried, on the slowest rank; empty where there was one."""
    first_run_s: float
    """Seconds of the first runs of all plans, in which compilers work."""
    program: DeviceStep
    """What was captured, to be run operation by operation; on all ranks, since it reduces."""

    def record(self) -> dict[str, Any]:
        """For the manifest and `capture.json`."""
        plan = {"name": self.plan.name, "measured_ms": self.measured_ms}
        return describe(self.step) | {"plan": plan}


class ArenaState:
    """The arena, and what else the step changes, as `WholeStep` sees state."""

    def __init__(self, arena: Arena, extra: Callable[[], Sequence[Tensor]]) -> None:
        self._arena, self._extra = arena, extra
        self.metrics = arena.metrics

    def lasting(self) -> list[Tensor]:
        """See `Arena.lasting`."""
        return [*self._arena.lasting(), *self._extra()]

    def pointers(self) -> dict[str, Tensor]:
        """Flat buffers, counters, and the module's parameters and buffers as it reaches them now."""
        arena, found = self._arena, dict[str, Tensor]()
        for name in ("master", "working", "m", "v", "sums", "rank_tokens", "applied", "skipped"):
            found[name] = getattr(arena, name)
        found |= {f"param/{name}": p for name, p in arena.module.named_parameters()}
        found |= {f"buffer/{name}": b for name, b in arena.module.named_buffers()}
        found |= {f"before/{name}": b for name, b in arena.buffers_before.items()}
        return found | {f"extra/{i}": tensor for i, tensor in enumerate(self._extra())}


def capture_step(
    step: Step,
    program: Callable[[str], Step],
    arena: Arena,
    batch: Any,
    plans: tuple[Plan, ...],
    options: Options | None = None,
    extra: Callable[[], Sequence[Tensor]] = tuple,
) -> Captured:
    """Captures a step on all ranks, by the plan that is fastest on the slowest of them.

    Args:
      step: uncompiled; it makes the steps whose shape has no graph.
      program: the step as compiled for `whole` or `blocks`.
      batch: an example; every later one has its shapes.
      extra: what the step changes besides the arena, such as an average of the weights, as it is reached now.

    Raises:
      CaptureRefused: it cannot be captured; the arena is as it was.
    """
    global _captures
    _captures += 1
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    handshake = default_handshake(rank, world_size, str(_captures))
    communicator = Communicator(arena.device)
    state = ArenaState(arena, extra)
    example = {name: values.cpu() for name, values in batch.items()}

    built: list[WholeStep] = []
    programs: dict[Plan, DeviceStep] = {}

    def build(plan: Plan) -> WholeStep:
        compiled = program(plan.programs)
        captured = reducing(compiled, arena, plan, communicator.all_reduce)
        local = captured if world_size == 1 else reducing(compiled, arena, plan, _nothing)
        forms = Forms(*(_bound(form, arena) for form in (captured, local, step)))
        if world_size == 1:
            forms = replace(forms, local=forms.captured)
        programs[plan] = forms.captured
        built.append(WholeStep(forms, state, arena.device, handshake, options))
        return built[-1]

    try:
        whole, plan, measured_ms = choose(plans, build, example, state.lasting(), handshake)
    except CaptureRefused:
        communicator.close()
        raise
    whole.on_closed(communicator.close)
    first_run_s = sum(each.counts.first_run_s for each in built)
    return Captured(whole, plan, measured_ms, first_run_s, programs[plan])


def reducing(step: Step, arena: Arena, plan: Plan, all_reduce: Callable[[Tensor], None]) -> Step:
    """A step that reduces by a plan; an eager step that takes it too gives the same bits."""
    if plan.bucket_mib is None:
        return replace(step, reduce=all_reduce, overlap=None)
    buckets = plan_buckets(arena.grads, arena.sums, plan.bucket_mib << 20, arena.num_decayed)
    stream = torch.cuda.Stream(arena.device) if arena.device.type == "cuda" else None
    overlap = Overlap(buckets, all_reduce, stream)
    return replace(step, reduce=lambda sums: overlap.join(), overlap=overlap)


def _bound(step: Step, arena: Arena) -> Callable[[Any], None]:
    return lambda batch: step(arena, batch)


def _nothing(flat: Tensor) -> None:
    """The reduction of a warm-up."""
