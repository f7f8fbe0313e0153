"""Makes the step one XLA program, ahead of time and exactly once, and proves what that program does.

The step comes in uncompiled and goes out as something that is called in the same way. Must not: change what
the step computes, or its dtypes; options are chosen from the precision table. Counterpart:
`torch_impl/compile.py`.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax

from jax_impl.memory import Arena, abstract, prove_in_place
from jax_impl.parallel import REPLICATED
from jax_impl.runtime import compiler_options
from jax_impl.step import Batch, Step
from jax_impl.xla import hlo
from jax_impl.xla.options import mode_options
from jax_impl.xla.program import build
from spec.errors import RuleError
from spec.jit import jit_options
from spec.precision import Profile
from spec.run import check_mode


@dataclass(frozen=True)
class Compiled:
    """A step that runs, and what became of it."""

    step: Callable[[Any, Batch], tuple[Any, jax.Array]]
    """(state, batch) -> (state, metrics). The state that goes in is used up."""
    mode_ran: str
    compile_s: float | None
    reasons: dict[str, str]
    """Why a figure is null, by figure."""
    options: dict[str, Any]
    """What the compiler was told, for the manifest."""
    proven: dict[str, Any] | None = None
    """What was found in the program, for the manifest; None where there is no single program."""


def compile_step(step: Step, arena: Arena, batch: Batch, mode: str, profile: Profile) -> Compiled:
    """Makes the step run in the mode asked for; the arena stays as it is.

    Args:
      batch: rows of the shapes and dtypes that every later batch has; all ranks call this together.

    Raises:
      RuleError: the mode cannot be had here, or the program does not do what it should (`prove`).
    """
    check_mode("jax", mode, arena.ranks.device.platform, arena.ranks.world_size)
    if mode == "nojit":
        return _without_compiler(step)
    options = compiler_options(profile) | mode_options(jit_options(mode))
    built = build(_train_step(step), arena, batch, options, donate_argnums=0)
    if built.made != 1:
        raise RuleError("A step is one program, compiled once.", f"{built.made} programs of it were made")
    proven = built.found() | prove(built.program, arena)
    return Compiled(built.program, mode, built.seconds, {}, options, proven)


def uncompiled(step: Callable[[Any, Batch], tuple[Any, jax.Array]], mode: str, reason: str) -> Compiled:
    """A step that runs as it came; the reason says why there is no `compile_s`."""
    return Compiled(step, mode, None, {"compile_s": reason}, {})


def compile_observed(step: Step, arena: Arena, batch: Batch, mode: str, profile: Profile) -> Step:
    """The same step as a second program, which gives the gradients too and leaves its state as it was.

    A program with more results is another program, so it never takes the place of the one that is timed. In
    mode nojit there is no program, here neither.
    """
    if mode == "nojit":
        return without_compiler(step)

    def observed_step(state: Any, batch: Batch) -> Any:
        return step(state, batch)

    options = compiler_options(profile)
    return build(observed_step, arena, batch, options, gradients=(REPLICATED,)).program


def prove(program: jax.stages.Compiled, arena: Arena, steps: int = 1) -> dict[str, Any]:
    """What the program was found to do, for the manifest.

    Args:
      steps: training steps that the program makes, as a loop or written out.

    Raises:
      RuleError: it does not update its state in place, or does not reduce every gradient exactly once a step,
        outside of the loop over micro-batches.
    """
    text = program.as_text()
    assert text is not None
    in_place_bytes = prove_in_place(program, abstract(arena.train_state))
    found = hlo.collectives(text)
    num_sums = sum(row.size for row in arena.rows) + 2 if arena.ranks.world_size > 1 else 0
    over_steps = int(steps > 1 and any(item.loops for item in found))
    expected = num_sums if over_steps else num_sums * steps
    reduced = sum(item.elements for item in found if item.kind == "all-reduce")
    in_loops = sum(item.loops != over_steps for item in found)
    others = sorted({item.kind for item in found} - {"all-reduce"})
    if reduced != expected or in_loops or others:
        raise RuleError(
            "A step reduces every gradient, the loss and the tokens exactly once, outside of its loops.",
            f"{reduced} elements reduced by {len(found)} collectives, {expected} expected; "
            f"in loops: {in_loops}; of other kinds: {', '.join(others) or 'none'}",
            "take gradients with respect to parameters that are marked as the rank's own",
        )
    return {
        "program_sha256": hashlib.sha256(hlo.without_places(text).encode()).hexdigest(),
        "state_bytes_in_place": in_place_bytes,
        "all_reduces": len(found),
        "elements_reduced": reduced,
    }


def without_compiler(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function operation by operation."""

    def run(*arguments: Any) -> Any:
        with jax.disable_jit():
            return function(*arguments)

    return run


def _train_step(step: Step) -> Callable[[Any, Batch], tuple[Any, jax.Array]]:
    """The step without its gradients, under the name that XLA and the count of compilations know it by."""

    def train_step(state: Any, batch: Batch) -> tuple[Any, jax.Array]:
        return step(state, batch)[:2]

    return train_step


def _without_compiler(step: Step) -> Compiled:
    """Operation by operation, as a debugger wants it."""

    compiled = uncompiled(_train_step(without_compiler(step)), "nojit", "nothing is compiled in mode nojit")
    many_calls = dict.fromkeys(("launch_us", "capture"), "in mode nojit many calls launch a step")
    return replace(compiled, reasons=compiled.reasons | many_calls)
