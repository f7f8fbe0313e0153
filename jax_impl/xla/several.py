"""Several steps in one launch: a program that loops over batches which are on the device already.

The step is the same function; what the host pays for a launch, it pays once for all of them. Must not: change
what a step computes. A loop body may be fused otherwise than a step alone, so last bits can differ.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from jax_impl.compile import Compiled, prove
from jax_impl.memory import Arena
from jax_impl.parallel import BY_RANK
from jax_impl.runtime import compiler_options
from jax_impl.step import Batch, Step
from jax_impl.xla.options import mode_options
from jax_impl.xla.packing import PackedStage
from jax_impl.xla.program import build
from spec.jit import jit_options
from spec.precision import Profile

STACKED = PartitionSpec(None, *BY_RANK)
"""Steps first, and within each the ranks' shares of its rows."""


def stage_several(many: Sequence[dict[str, np.ndarray]], stage: PackedStage) -> Batch:
    """The rows of several steps on the device, stacked along a first axis; the copies are queued.

    Raises:
      RuleError: names, shapes or dtypes differ from those of the first that `stage` was given.
    """
    for rows in many:
        stage.check(rows)
    packed = [stage.packing.pack(rows) for rows in many]
    return stage.put({dtype: np.stack([rows[dtype] for rows in packed]) for dtype in packed[0]}, STACKED)


def compile_several(step: Step, arena: Arena, batches: Batch, mode: str, profile: Profile) -> Compiled:
    """The program of as many steps as are stacked; it returns their metrics, stacked too.

    Raises:
      RuleError: the program does not do what it should; see `prove`.
    """
    options = compiler_options(profile) | mode_options(jit_options(mode))
    steps = next(iter(batches.values())).shape[0]

    def train_steps(state: Any, batches: Batch) -> tuple[Any, jax.Array]:
        return lax.scan(lambda own, batch: step(own, batch)[:2], state, batches)

    built = build(train_steps, arena, batches, options, rows=STACKED, donate_argnums=0)
    proven = built.found() | prove(built.program, arena, steps) | {"steps_per_launch": steps}
    return Compiled(built.program, mode, built.seconds, {}, options, proven)
