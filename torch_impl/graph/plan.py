"""Plans: how the work between forward and update is cut for compiling and for reducing.

A plan changes no dtype and no meaning, only which kernels a compiler makes and in which ranges gradients
travel. That can move the last bits, so a profile that promises bits has one plan, and any other is written
down. Must not: depend on measurements of one rank alone.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_impl.graph.capture import CaptureRefused
from torch_impl.graph.handshake import Handshake
from torch_impl.graph.neutral import SavedState
from torch_impl.graph.whole_step import WholeStep

WARM_LAUNCHES, TIMED_LAUNCHES = 5, 20


@dataclass(frozen=True)
class Plan:
    """One way to cut the step."""

    programs: str
    """`whole`: the loss is one program. `blocks`: each block of the model is one, so that gradients come
    while backward goes on."""
    bucket_mib: int | None
    """Gradients travel in buckets of at least this size, each as soon as it is full; None: all at the end."""

    @property
    def name(self) -> str:
        """For records."""
        return self.programs + ("" if self.bucket_mib is None else f"+buckets{self.bucket_mib}")


FLAT = Plan("whole", None)


def candidates(cut: str | None, world_size: int, fixed: bool) -> tuple[Plan, ...]:
    """The plans worth measuring.

    Args:
      cut: the programs that hand over gradients while backward goes on: `whole` where kernels are eager
        anyhow, `blocks`, or None where the model cannot be cut.
      fixed: the profile promises bits, so that eager and captured steps must follow one plan.
    """
    if world_size == 1 or fixed or cut is None:
        return (FLAT,)
    return (FLAT, Plan(cut, 25), Plan(cut, 100))


def kept(plans: tuple[Plan, ...], recorded: Any) -> tuple[Plan, ...]:
    """The plan that a checkpoint recorded, alone, where this run could choose it; else all of them.

    Going on by another plan would move the last bits.

    Args:
      recorded: `plan` of `Captured.record()`, or anything else that a checkpoint holds there.
    """
    name = recorded.get("name") if isinstance(recorded, dict) else None
    return tuple(plan for plan in plans if plan.name == name) or plans


def choose(
    plans: Sequence[Plan],
    build: Callable[[Plan], WholeStep],
    example: Any,
    lasting: Sequence[torch.Tensor],
    handshake: Handshake,
) -> tuple[WholeStep, Plan, dict[str, float]]:
    """Captures each plan and keeps the fastest on the slowest rank; the state is afterwards as it was.

    Args:
      build: a step of a plan, not yet captured.
      example: a host batch.
      lasting: what a step changes; put back after the launches that are measured.

    Returns:
      The captured step at its beginning, its plan, and milliseconds a step by plan (empty for one plan).

    Raises:
      CaptureRefused: not even the first plan can be captured.
    """
    if len(plans) == 1:
        step = build(plans[0])
        step.capture(example)
        return step, plans[0], {}
    measured_ms: dict[str, float] = {}
    best, best_plan = None, plans[0]
    for plan in plans:
        step = build(plan)
        try:
            step.capture(example)
        except CaptureRefused:
            # All ranks are refused together, so all go on to the next.
            if best is None:
                raise
            continue
        saved = SavedState(lasting, step.device)
        measured_ms |= handshake.slowest({plan.name: time_launches_ms(step, example)})
        saved.put_back()
        step.rewind()
        if best is None or measured_ms.get(plan.name, math.inf) < measured_ms[best_plan.name]:
            if best is not None:
                best.close()
            best, best_plan = step, plan
        else:
            step.close()
    assert best is not None
    return best, best_plan, measured_ms


def time_launches_ms(step: WholeStep, example: Any) -> float:
    """Wall milliseconds of a step, back to back."""
    for _ in range(WARM_LAUNCHES):
        step(example)
    torch.cuda.synchronize(step.device)
    started = time.perf_counter()
    for _ in range(TIMED_LAUNCHES):
        step(example)
    torch.cuda.synchronize(step.device)
    return (time.perf_counter() - started) * 1e3 / TIMED_LAUNCHES
