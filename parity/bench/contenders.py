"""Who takes part in a benchmark: our own steps in their modes, and baselines by name or all that can run.

Must not: start anything.
"""

import os
import shutil

from parity.options import Bench
from parity.plan import Plan, parse_baselines, parse_modes
from spec.run import BASELINES, OwnOptimizer

Contender = tuple[str, str]
"""A side and the mode of its step."""


def contenders(plan: Plan, options: Bench) -> tuple[list[Contender], list[str]]:
    """The modes of each side, then its baselines, side by side so that neighbours share a launch; and a line
    for each baseline that `all` leaves out here.

    Raises:
      RuleError: an unknown baseline, or one of a side that does not run.
    """
    modes = parse_modes(options.mode, plan.spec.execution.device)
    ours = [(side, mode) for side in plan.backends for mode in modes[side]]
    if options.mode == "auto":
        # A pair's own optimizer changes what auto means, and the plan knows.
        ours = [(side, plan.spec.execution.mode(side)) for side in plan.backends]
    left_out: list[str] = []
    if options.baselines == "all":
        known = [(side, name) for side in plan.backends for name in BASELINES[side]]
        cannot = {(side, name): reason for side, name in known if (reason := _why_not(side, name, plan))}
        baselines = [(side, f"baseline:{name}") for side, name in known if (side, name) not in cannot]
        left_out = [
            f"baseline {side}:{name} is left out: {reason}" for (side, name), reason in cannot.items()
        ]
    else:
        baselines = list(parse_baselines(options.baselines, plan.backends))
    chosen = dict.fromkeys([*ours, *baselines])
    return sorted(chosen, key=lambda contender: plan.backends.index(contender[0])), left_out


def _why_not(side: str, name: str, plan: Plan) -> str | None:
    if isinstance(plan.spec.problem.optimizer, OwnOptimizer):
        return "a baseline is stock, and the optimizer is the user's own"
    return why_not(side, name, plan.spec.execution.device, plan.spec.execution.world_size)


def why_not(side: str, name: str, device: str, world_size: int) -> str | None:
    """Why a baseline cannot run, or would be another under its name; None where it can."""
    if side != "torch":
        return None
    if name == "eager" and world_size > 1:
        return f"it is one process's, and there are {world_size}; torch:ddp is its like"
    if name == "ddp" and world_size == 1:
        return "one process has nobody to reduce with; torch:eager is its like"
    if name == "reduce-overhead" and device == "cpu":
        return "it records CUDA graphs"
    compiler = os.environ.get("CXX") or "g++"
    if name == "compile" and device == "cpu" and not (shutil.which(compiler) or shutil.which("clang++")):
        return "no C++ compiler is here"
    return None
