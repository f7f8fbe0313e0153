"""Process-global flags of torch, set from the precision table, and probes that prove the table on the device.

Must not: decide a number that is not in `spec/precision.py`. Counterpart: `jax_impl/runtime.py`.
"""

import os
from typing import Any

import torch
import torch.cuda.nccl
import torch.nn.functional as F

from spec.errors import RuleError
from spec.precision import Profile
from spec.run import Execution, Problem
from torch_impl.loss import cross_entropy
from torch_impl.models.gpt import attention

DETERMINISTIC_PROFILES = ("f64", "strict")
"""Profiles in which a kernel whose result depends on timing is refused. In the others it would cost speed."""


def configure(problem: Problem, execution: Execution) -> None:
    """Sets every process-global flag that can change a number; to be called before the first tensor.

    Calling it again for another problem is allowed: nothing is left over from the one before.
    """
    # cuBLAS reads it once, when the GPU is first used; without it its workspaces make results vary.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    tf32 = problem.profile.matmul == "tf32"
    # The older of two interfaces: mixing it with `fp32_precision` is an error, and inductor reads this one.
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cudnn.benchmark = False
    # The same as use_deterministic_algorithms, which loads inductor: seconds, though nothing may be compiled.
    torch.set_deterministic_debug_mode("error" if problem.precision in DETERMINISTIC_PROFILES else "default")
    # Deterministic mode would also fill all fresh memory, which costs a write and changes nothing here.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def compiler_options(profile: Profile) -> dict[str, Any]:
    """What inductor is told for every program under a profile, as far as this torch has such options."""
    from torch._inductor import config  # here, because it takes seconds to load

    known = config.get_config_copy()
    options: dict[str, Any] = {}
    if profile.compute == "bfloat16" and not profile.excess:
        # Fused bfloat16 operations would otherwise skip the roundings between them.
        options["emulate_precision_casts"] = True
    if profile.name in DETERMINISTIC_PROFILES:
        # Triton's own division is approximate. The second name is what torch called it before.
        names = ("deterministic", "eager_numerics.division_rounding", "emulate_divison_rounding")
        options |= {name: True for name in names if name in known}
    return options


def environment() -> dict[str, Any]:
    """Versions, flags and devices as torch sees them, for the manifest."""
    cuda = torch.cuda.is_available()
    nccl = torch.cuda.nccl.version() if cuda and torch.distributed.is_nccl_available() else None
    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else ["cpu"]
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "nccl": ".".join(map(str, nccl)) if nccl else None,
        "devices": devices,
        "threads": torch.get_num_threads(),
        "flags": {
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
            "bf16_reduced_precision_reduction": (
                torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
            ),
            "cublas_workspace_config": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        },
    }


def peak_memory() -> tuple[int | None, str | None]:
    """(most bytes that the allocator had handed out, None), or (None, why it cannot be told)."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated(), None
    return None, "torch's CPU allocator keeps no count"


def probes(profile: Profile, device: torch.device) -> list[dict[str, Any]]:
    """Small computations on the device whose results tell how it rounds, against what the table says.

    Returns:
      One dict a probe: name, expected, got, ok.

    Raises:
      RuleError: a probe does not find what the table says.
    """
    inputs = "tf32" if profile.matmul == "tf32" else profile.compute
    findings = [
        ("matmul_inputs", inputs, _matmul_inputs(profile, device)),
        ("norm_statistics", profile.statistics, _norm_statistics(profile, device)),
        ("softmax_statistics", profile.statistics, _softmax_statistics(profile, device)),
        ("loss_dtype", profile.statistics, _loss_dtype(profile, device)),
    ]
    found = [
        {"name": name, "expected": expected, "got": got, "ok": got == expected}
        for name, expected, got in findings
    ]
    wrong = [f"{p['name']}: expected {p['expected']}, got {p['got']}" for p in found if not p["ok"]]
    if wrong:
        raise RuleError(
            f"The device computes as the profile {profile.name} says.",
            "; ".join(wrong),
            "take another profile, or mend the flags or variables that change torch's precision",
        )
    return found


_MANTISSA_BITS = {52: "float64", 23: "float32", 10: "tf32", 7: "bfloat16"}


def _matmul_inputs(profile: Profile, device: torch.device) -> str:
    """1 + 2**-k for k = 1, 2, ... times one: how many come out as they are tells the mantissa inside."""
    # One bit too many comes out above one too where ties are rounded away from zero, as some kernels do.
    above_one_N = 1 + 2.0 ** -torch.arange(1, 53, dtype=torch.float64, device=device)
    dtype = getattr(torch, profile.compute)
    out_NN = above_one_N.to(dtype).diag() @ torch.ones(52, 52, dtype=dtype, device=device)
    bits = int((out_NN[:, 0].double() == above_one_N).sum())
    return _MANTISSA_BITS.get(bits, f"{bits} bits")


_VISIBLE = {"float64": 2.0**-40, "float32": 2.0**-20, "bfloat16": 2.0**-7}
"""A difference from 1 that a dtype holds and the next coarser one does not."""


def _norm_statistics(profile: Profile, device: torch.device) -> str:
    """A row of 1 and 1 + d has mean 1 + d/2, which is lost where the statistics are bfloat16 too."""
    dtype, d = getattr(torch, profile.compute), _VISIBLE[profile.compute]
    row_C = torch.tensor([1.0, 1.0 + d] * 8, dtype=torch.float64, device=device).to(dtype)
    out_C = F.layer_norm(row_C, (16,), eps=0.0)
    spread = float((out_C[1] - out_C[0]).double())
    return profile.statistics if abs(spread - 2) < 0.1 else f"coarser (spread {spread:.3g}, not 2)"


def _softmax_statistics(profile: Profile, device: torch.device) -> str:
    """Weights of the attention that the profile takes: a thousand equal ones add up to 1."""
    num_positions, dtype = 1024, getattr(torch, profile.compute)
    query_TD = torch.ones(num_positions, 16, dtype=dtype, device=device)
    key_TD, value_TD = torch.zeros_like(query_TD), torch.ones_like(query_TD)
    out_TD = attention(profile)(*(x_TD[None, None] for x_TD in (query_TD, key_TD, value_TD)))[0, 0]
    total = float(out_TD[-1, 0].double())
    return profile.statistics if abs(total - 1) <= profile.unit_roundoff * 2 else f"coarser (sum {total})"


def _loss_dtype(profile: Profile, device: torch.device) -> str:
    """The dtype in which the losses of logits of the compute dtype are summed."""
    logits_BTV = torch.zeros(1, 1, 2, dtype=getattr(torch, profile.compute), device=device)
    loss_sum, _ = cross_entropy(logits_BTV, torch.zeros(1, 1, dtype=torch.int32, device=device))
    return str(loss_sum.dtype).removeprefix("torch.")
