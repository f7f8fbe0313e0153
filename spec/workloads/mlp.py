"""Two affine layers with SiLU between and a squared error: the smallest step that has every phase.

Counterparts: `torch_impl/models/mlp.py` and `jax_impl/models/mlp.py` compute what this table describes.
"""

import math
from dataclasses import dataclass

from spec.errors import RuleError
from spec.params import ParamSpec, linear


@dataclass(frozen=True, kw_only=True)
class MlpSizes:
    """I is the input width, H the hidden width, O the output width."""

    d_in: int
    d_hidden: int
    d_out: int

    def __post_init__(self) -> None:
        for name in ("d_in", "d_hidden", "d_out"):
            if getattr(self, name) < 1:
                raise RuleError("Model sizes are at least 1.", f"{name} = {getattr(self, name)}")


def parameter_table(sizes: MlpSizes) -> tuple[ParamSpec, ...]:
    """Every parameter in canonical order; weights start with variance 1 / fan-in."""
    return (
        *linear("fc1", sizes.d_in, sizes.d_hidden, 1 / math.sqrt(sizes.d_in)),
        *linear("fc2", sizes.d_hidden, sizes.d_out, 1 / math.sqrt(sizes.d_hidden)),
    )


def step_flops(sizes: MlpSizes, global_batch: int) -> int:
    """Forward plus backward (twice the forward), matrix products only."""
    return 6 * global_batch * sizes.d_hidden * (sizes.d_in + sizes.d_out)
