"""What runs the step: eagerly, or compiled by inductor; and the one place where capture of a graph belongs.

The step comes in uncompiled and goes out as something that is called in the same way. Must not: change what
the step computes, or its dtypes; options are chosen from the precision table. Counterpart:
`jax_impl/compile.py`.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from spec.precision import Profile
from spec.run import check_mode
from torch_impl.graph.adapt import capture_step
from torch_impl.graph.blocks import by_blocks, find_blocks
from torch_impl.graph.capture import CaptureRefused
from torch_impl.graph.own_update import prove_own
from torch_impl.graph.plan import candidates, kept
from torch_impl.graph.whole_step import WholeStep
from torch_impl.memory import Arena
from torch_impl.own_optimizer import OwnUpdate
from torch_impl.runtime import DETERMINISTIC_PROFILES, compiler_options
from torch_impl.step import Batch, Step


@dataclass(frozen=True)
class Compiled:
    """A step that runs, and what became of it."""

    step: Callable[[Any, Batch], None]
    """(state, batch) -> None; changes the state in place."""
    mode_ran: str
    compile_s: float | None
    reasons: dict[str, str]
    """Why a figure is null, by figure."""
    options: dict[str, Any]
    """What the compiler was told, for the manifest."""
    proven: dict[str, Any] | None = None
    """What was found in the one program that makes a step, for the manifest; None where there are several."""
    whole: WholeStep | None = None
    """The step as one graph, which takes host rows by itself; None where many calls launch a step."""


def compile_step(
    step: Step, arena: Arena, batch: Batch, mode: str, profile: Profile, plan: Any = None
) -> Compiled:
    """Makes the step run in the mode asked for; the arena is afterwards as it was before.

    A graph that cannot be captured is no error: all ranks run the step without one, and say why. One that
    trains otherwise than what was captured is an error.

    Args:
      batch: rows of the shapes and dtypes that every later batch has; all ranks call this together.
      plan: what the run that is resumed recorded of its plan; see `graph.plan.kept`.

    Raises:
      RuleError: there is no such mode, the device cannot run it, or an optimizer of the user's own computes
        on the host what a graph would freeze.
    """
    check_mode("torch", mode, arena.device.type)
    base = mode.removeprefix("graph+") if mode != "graph" else "eager"
    refusal = ""
    if base != mode:
        try:
            return _captured(step, arena, batch, mode, profile, plan)
        except CaptureRefused as error:
            refusal = f"no graph was captured: {error}"
    if base == "eager" or isinstance(step.update, OwnUpdate):
        compiled = uncompiled(step, "eager", "nothing is compiled in mode eager")
    else:
        compiled = _compiled(step, arena, batch, profile)
    return replace(compiled, reasons=compiled.reasons | ({"capture": refusal} if refusal else {}))


def _captured(step: Step, arena: Arena, batch: Batch, mode: str, profile: Profile, recorded: Any) -> Compiled:
    """The step as one graph."""
    own = step.update if isinstance(step.update, OwnUpdate) else None
    is_compiled = mode == "graph+inductor"
    options = compiler_options(profile) if is_compiled else {}

    def program(kind: str) -> Step:
        if not is_compiled:
            return step
        # What an optimizer of the user's own does is not known to compile into one program.
        update = step.update if own else _inductor(step.update, options)
        if kind == "whole":
            return replace(step, loss=_inductor(step.loss, options), update=update)
        return replace(step, loss=by_blocks(step.loss, arena.module, _how(options)), update=update)

    plans = candidates(
        cut="blocks" if is_compiled and find_blocks(arena.module) else None if is_compiled else "whole",
        world_size=dist.get_world_size() if dist.is_initialized() else 1,
        fixed=profile.name in DETERMINISTIC_PROFILES,
    )
    with own.holding() if own else contextlib.nullcontext():
        extra = own.lasting if own else tuple
        captured = capture_step(step, program, arena, batch, kept(plans, recorded), extra=extra)
    whole, proven = captured.step, captured.record()
    if own:
        proven["own_optimizer"] = prove_own(
            own, captured, arena, batch, exact=profile.name in DETERMINISTIC_PROFILES
        )
    reasons = {} if is_compiled else {"compile_s": "nothing is compiled in mode graph"}
    compile_s = captured.first_run_s if is_compiled else None
    return Compiled(step, mode, compile_s, reasons, options, proven, whole)


def _compiled(step: Step, arena: Arena, batch: Batch, profile: Profile) -> Compiled:
    """The step as two programs of inductor's."""
    options = compiler_options(profile)
    started = time.perf_counter()
    compiled = replace(step, loss=_inductor(step.loss, options), update=_inductor(step.update, options))
    # Compilers work at the first call. It is a whole step, so its effects are taken back.
    with torch.random.fork_rng(devices=[arena.device] if arena.device.type == "cuda" else []):
        saved = [tensor.clone() for tensor in arena.lasting()]
        compiled(arena, batch)
        torch._foreach_copy_(arena.lasting(), saved)
    return Compiled(compiled, "inductor", time.perf_counter() - started, _many_calls("inductor"), options)


def uncompiled(step: Callable[[Any, Batch], None], mode: str, reason: str) -> Compiled:
    """A step that runs as it came; the reason says why there is no `compile_s`."""
    return Compiled(step, mode, None, _many_calls(mode) | {"compile_s": reason}, {})


def _many_calls(mode: str) -> dict[str, str]:
    return dict.fromkeys(("launch_us", "capture"), f"in mode {mode} many calls launch a step")


def _inductor(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """One program for the shapes of the first call; a graph break is an error, not several programs."""
    return torch.compile(function, **_how(options))


def _how(options: dict[str, Any]) -> dict[str, Any]:
    return {"fullgraph": True, "dynamic": False, "options": options}
