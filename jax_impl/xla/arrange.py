"""How a module goes through its layers: recomputed in the backward pass, or as one loop.

A module that can be told so has a method `arrange(remat, scan_layers)`, as `jax_impl/models/gpt.py` has; a
user's own may have it too. Must not: change what a module computes.
"""

from flax import nnx

from spec.errors import RuleError
from spec.jit import JitOptions


def arranged(module: nnx.Module, options: JitOptions) -> nnx.Module:
    """The module, told how.

    Raises:
      RuleError: it cannot be told.
    """
    arrange = getattr(module, "arrange", None)
    if arrange is not None:
        arrange(options.remat, options.scan_layers)
    elif options.remat or options.scan_layers:
        raise RuleError(
            "Only a module with layers is recomputed or looped over layer by layer.",
            f"{type(module).__name__} has no method arrange(remat, scan_layers)",
            "give it one (see jax_impl/models/gpt.py), or leave remat and scan out of the mode",
        )
    return module
