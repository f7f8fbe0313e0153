"""The workloads that ship with the project: sizes, parameter table and FLOPs, one file each."""

from spec.params import ParamSpec
from spec.workloads import gpt, mlp

WORKLOADS = {"gpt": gpt, "mlp": mlp}

Sizes = gpt.GptSizes | mlp.MlpSizes


def parameter_table(workload: str, sizes: Sizes) -> tuple[ParamSpec, ...]:
    """The parameters of a workload in canonical order."""
    return WORKLOADS[workload].parameter_table(sizes)


def step_flops(workload: str, sizes: Sizes, global_batch: int) -> int:
    """Model floating-point operations of one step (forward and backward, recomputation not counted)."""
    return WORKLOADS[workload].step_flops(sizes, global_batch)
