"""Process-global choices of JAX, what a profile tells tracing and compiling, and probes that prove the table.

Must not: decide a number that is not in `spec/precision.py`. Counterpart: `torch_impl/runtime.py`.
"""

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.backend
import jax.numpy as jnp
import jaxlib
import numpy as np
from flax import nnx

from jax_impl.layers import LayerNorm
from jax_impl.loss import cross_entropy
from jax_impl.models.gpt import attention
from jax_impl.xla import flags, process
from spec.errors import RuleError
from spec.jit import TUNED
from spec.precision import Profile
from spec.run import Execution, Problem

DETERMINISTIC_PROFILES = ("f64", "strict")
"""Profiles in which a kernel whose result depends on timing is refused. In the others it would cost speed."""

_widths: set[bool] = set()
"""With (True) or without 64-bit types: what this process has been configured for."""


def configure(problem: Problem, execution: Execution) -> None:
    """Chooses platform and width of this process; to be called before the first array.

    Raises:
      RuleError: the process has worked in another width (arrays of both cannot live side by side), or
        XLA_FLAGS holds what the installed jaxlib refuses.
    """
    if execution.device == "cuda" and execution.world_size > 1:
        process.arm_nccl(execution.stall_s)
    flags.check()
    x64 = problem.profile.master == "float64"
    if _setting("jax_enable_x64") != x64:
        if _widths:
            raise RuleError(
                "A process works in float64 or in narrower types, not in both.",
                f"a job of the {problem.precision} profile after one of {'narrower types' if x64 else 'f64'}",
                "give the jobs of the f64 profile a process of their own",
            )
        jax.config.update("jax_enable_x64", x64)
    _widths.add(x64)
    if "OMP_NUM_THREADS" in os.environ:
        # What PyTorch obeys. XLA knows only NPROC, and takes every core where processes share them.
        os.environ.setdefault("NPROC", os.environ["OMP_NUM_THREADS"])
    process.use_cache()
    if execution.device == "cuda":
        process.take_memory(execution.world_size if execution.jax_one_process else 1)
        if execution.world_size == 1:
            process.use_one_gpu()
    if _setting("jax_platforms") != execution.device:
        jax.config.update("jax_platforms", execution.device)


def matmul_precision(profile: Profile) -> contextlib.AbstractContextManager[Any]:
    """Inside it matrix products are traced with the rounding of the profile, their derivatives too."""
    # Products of bfloat16 are exact in the float32 that they are summed in, so they take the plain kernels.
    narrow = profile.compute == "bfloat16"
    precision = "tensorfloat32" if profile.matmul == "tf32" else "default" if narrow else "highest"
    return jax.default_matmul_precision(precision)


def compiler_options(profile: Profile) -> dict[str, Any]:
    """What XLA is told for every program under a profile, over the user's XLA_FLAGS."""
    # By default XLA skips roundings to bfloat16 inside a fusion, that of the working copy among them.
    options: dict[str, Any] = {"xla_allow_excess_precision": profile.excess}
    if profile.name in DETERMINISTIC_PROFILES and jax.default_backend() == "gpu":
        options["xla_gpu_deterministic_ops"] = True
    elif TUNED in os.environ and jax.default_backend() == "gpu":
        # XLA tries kernels out in every process anew, and what was traced would not be what was timed. Where
        # there are several, each tries a share and writes that alone, moving whole files into place.
        options["xla_gpu_per_fusion_autotune_cache_dir"] = os.environ[TUNED]
    return options


def environment() -> dict[str, Any]:
    """Versions, flags and devices as JAX sees them, for the manifest."""
    settings = ("jax_enable_x64", "jax_default_matmul_precision", "jax_cpu_collectives_implementation")
    return {
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "platform_version": jax.extend.backend.get_backend().platform_version,
        "devices": [device.device_kind for device in jax.local_devices()],
        "threads": int(os.environ.get("NPROC", os.cpu_count() or 1)),
        "flags": {name: _setting(name) for name in settings},
        **process.describe(),
        "xla_flags": {"given": os.environ.get("XLA_FLAGS", ""), "not_default": flags.changed()},
    }


def _setting(name: str) -> Any:
    return getattr(jax.config, name)


def peak_memory() -> tuple[int | None, str | None]:
    """(most bytes that the allocator had handed out, None), or (None, why it cannot be told)."""
    statistics = jax.local_devices()[0].memory_stats()
    if statistics and "peak_bytes_in_use" in statistics:
        return statistics["peak_bytes_in_use"], None
    return None, "XLA's CPU allocator keeps no count"


@functools.cache
def probes(profile: Profile, device: jax.Device) -> list[dict[str, Any]]:
    """Small computations on the device whose results tell how it rounds, against what the table says.

    They are traced and compiled as the step is.

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
        ("loss_dtype", profile.statistics, _loss_dtype(profile)),
        ("rounding_between_operations", profile.compute, _rounding(profile, device)),
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
            "take another profile, or mend the flags or variables that change XLA's precision",
        )
    return found


def _run(
    profile: Profile, device: jax.Device, function: Callable[..., jax.Array], *arrays: np.ndarray
) -> Any:
    """The result of a function on the device, in float64; nothing is folded away, as arrays are arguments."""
    arguments = [jax.device_put(array.astype(jnp.dtype(profile.compute)), device) for array in arrays]
    with matmul_precision(profile):
        program = jax.jit(function).lower(*arguments).compile(compiler_options(profile))
    return np.asarray(program(*arguments)).astype(np.float64)


_MANTISSA_BITS = {52: "float64", 23: "float32", 10: "tf32", 7: "bfloat16"}


def _matmul_inputs(profile: Profile, device: jax.Device) -> str:
    """1 + 2**-k for k = 1, 2, ... times one: how many come out as they are tells the mantissa inside."""
    # One bit too many comes out above one too where ties are rounded away from zero, as some kernels do.
    above_one_N = 1 + 2.0 ** -np.arange(1, 53)
    out_NN = _run(profile, device, jnp.matmul, np.diag(above_one_N), np.ones((52, 52)))
    bits = int((out_NN[:, 0] == above_one_N).sum())
    return _MANTISSA_BITS.get(bits, f"{bits} bits")


_VISIBLE = {"float64": 2.0**-40, "float32": 2.0**-20, "bfloat16": 2.0**-7}
"""A difference from 1 that a dtype holds and the next coarser one does not."""


def _norm_statistics(profile: Profile, device: jax.Device) -> str:
    """A row of 1 and 1 + d has mean 1 + d/2, which is lost where the statistics are bfloat16 too."""
    norm = LayerNorm(16, epsilon=0.0, use_fast_variance=False, rngs=nnx.Rngs(0))
    out_C = _run(profile, device, norm, np.array([1.0, 1.0 + _VISIBLE[profile.compute]] * 8))
    spread = float(out_C[1] - out_C[0])
    return profile.statistics if abs(spread - 2) < 0.1 else f"coarser (spread {spread:.3g}, not 2)"


def _softmax_statistics(profile: Profile, device: jax.Device) -> str:
    """Weights of the attention that the profile takes: a thousand equal ones add up to 1."""
    query_BTHD = np.ones((1, 1024, 1, 16))
    out_BTHD = _run(profile, device, attention(profile), query_BTHD, 0 * query_BTHD, query_BTHD)
    total = float(out_BTHD[0, -1, 0, 0])
    return profile.statistics if abs(total - 1) <= profile.unit_roundoff * 2 else f"coarser (sum {total})"


def _loss_dtype(profile: Profile) -> str:
    """The dtype in which the losses of logits of the compute dtype are summed."""
    logits_BTV = jax.ShapeDtypeStruct((1, 1, 2), profile.compute)
    loss_sum, _ = jax.eval_shape(cross_entropy, logits_BTV, jax.ShapeDtypeStruct((1, 1), jnp.int32))
    return loss_sum.dtype.name


def _rounding(profile: Profile, device: jax.Device) -> str:
    """(x + 1) - x where 1 is half a spacing of x: 0 where the sum was rounded, 1 where a fusion kept it."""
    x = 2.0 ** {"float64": 53, "float32": 24, "bfloat16": 8}[profile.compute]
    kept = _run(profile, device, lambda x_N, one_N: (x_N + one_N) - x_N, np.full(8, x), np.ones(8))
    return profile.compute if not kept.any() else f"wider ({kept[0]:g} kept)"
