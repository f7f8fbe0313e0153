"""The catalogue: every edit by name, in tables by where it acts.

Each line is a mistake that people really made when they ported or reimplemented a training step. A new line
needs values to be tried, a signature, and a mend for each side. Must not: compute.
"""

from spec.edits.kinds import Kind
from spec.edits.of_compilers import OF_COMPILERS
from spec.edits.of_models import OF_MODELS
from spec.edits.of_step import OF_STEP

OF_ADAMW = (
    *("adam_eps", "adam_eps_place", "bias_correction", "beta1", "beta2"),
    *("weight_decay", "decay_form", "decay_all", "decay_tensor", "decay_stacked"),
    *("schedule_offset", "schedule_end", "warmup_offset"),
)
"""Edits that reach no optimizer but this project's."""

OF_WEIGHTS = {
    "transpose": Kind(
        what="a square matrix is taken transposed (1)",
        reach="weights",
        shows="act",
        signature="unrelated",
        values=(1,),
        number=bool,
        targeted=True,
        mend={side: {1: "transpose this matrix when weights are converted"} for side in ("torch", "jax")},
    ),
    "qkv_split": Kind(
        what="a fused projection holds its three parts head by head, of |value| heads; reversed if value < 0",
        reach="weights",
        shows="act",
        signature="unrelated",
        values=(2, 4, 8, 12, 16, -2, -4, -8, -12, -16),
        number=int,
        mend={
            side: "split the fused projection after its rows are read as (heads, 3, size); {size} heads"
            for side in ("torch", "jax")
        },
    ),
    "rope_layout": Kind(
        what="queries and keys turn as neighbours, not as halves, of |value| rows; reversed if value < 0",
        reach="weights",
        shows="act",
        signature="grows with position",
        values=(4, 8, 16, 32, 64, 128, -4, -8, -16, -32, -64, -128),
        number=int,
        mend={
            side: "permute the rows of queries and keys: halves of {size} rows to neighbours, or the reverse"
            for side in ("torch", "jax")
        },
    ),
}

OF_DATA = {
    "label_shift": Kind(
        what="labels are taken value positions later",
        reach="data",
        shows="loss",
        signature="loss alone",
        values=(1, -1, 0),
        number=int,
        mend={side: "shift labels by {value} more; once altogether" for side in ("torch", "jax")},
    ),
}

_GATE = "refused before the first step: tensors or random numbers without a counterpart"
REFUSED = {
    "dropout": Kind(
        what="dropout on one side",
        reach="refused",
        shows="act",
        signature="unrelated",
        torch="a model with p > 0 is refused: the frameworks' generators differ",
        jax="a model with a generator as state is refused",
    ),
    "tied_head": Kind(
        what="the output head is tied to the embedding on one side",
        reach="refused",
        shows="grad",
        signature="unrelated",
        torch=_GATE,
        jax=_GATE,
    ),
    "frozen": Kind(
        what="a buffer on one side is a trained parameter on the other",
        reach="refused",
        shows="grad",
        signature="unrelated",
        torch=_GATE,
        jax=_GATE,
    ),
}

CATALOGUE: dict[str, Kind] = OF_STEP | OF_MODELS | OF_WEIGHTS | OF_DATA | OF_COMPILERS | REFUSED
