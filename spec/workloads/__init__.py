"""The workloads: sizes, parameter table and FLOPs, one file each; `pair` is for models of the user's own."""

from spec.params import ParamSpec
from spec.workloads import gpt, mlp, pair

Sizes = gpt.GptSizes | mlp.MlpSizes | pair.PairSizes

WORKLOADS = {"gpt": gpt.GptSizes, "mlp": mlp.MlpSizes, "pair": pair.PairSizes}


def parameter_table(sizes: Sizes) -> tuple[ParamSpec, ...]:
    """The parameters of the workload that has these sizes, in canonical order."""
    if isinstance(sizes, pair.PairSizes):
        return sizes.parameters
    return gpt.parameter_table(sizes) if isinstance(sizes, gpt.GptSizes) else mlp.parameter_table(sizes)


def step_flops(sizes: Sizes, global_batch: int) -> int | None:
    """Model floating-point operations of one step (forward and backward, recomputation not counted); None
    for a pair of the user's, whose formula nobody wrote down."""
    if isinstance(sizes, pair.PairSizes):
        return None
    if isinstance(sizes, gpt.GptSizes):
        return gpt.step_flops(sizes, global_batch)
    return mlp.step_flops(sizes, global_batch)
