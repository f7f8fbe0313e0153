"""The workloads that ship with the project: sizes, parameter table and FLOPs, one file each."""

from spec.params import ParamSpec
from spec.workloads import gpt, mlp

Sizes = gpt.GptSizes | mlp.MlpSizes

WORKLOADS = {"gpt": gpt.GptSizes, "mlp": mlp.MlpSizes}


def parameter_table(sizes: Sizes) -> tuple[ParamSpec, ...]:
    """The parameters of the workload that has these sizes, in canonical order."""
    return gpt.parameter_table(sizes) if isinstance(sizes, gpt.GptSizes) else mlp.parameter_table(sizes)


def step_flops(sizes: Sizes, global_batch: int) -> int:
    """Model floating-point operations of one step (forward and backward, recomputation not counted)."""
    if isinstance(sizes, gpt.GptSizes):
        return gpt.step_flops(sizes, global_batch)
    return mlp.step_flops(sizes, global_batch)
