"""What a process of JAX is given before it looks for devices, and what must not be loaded into it.

Memory of the GPU, so that whoever else works there keeps theirs; the folder of compiled programs; one NCCL.
Must not: touch a device.
"""

import math
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import jax

from spec.errors import RuleError

_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_OWN_CHOICES = (_FRACTION, "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR")
"""Where the user has set one of these, nothing is chosen."""
_LARGEST, _SMALLEST = 0.9, 0.02
_MIB = 1024**2

_memory: dict[str, Any] = {"chosen": None, "reason": "no GPU"}


def take_memory(gpus: int = 1) -> None:
    """Sets how much of its GPUs this process takes: of what is free now, all but a reserve.

    The reserve is for CUDA contexts, NCCL and whatever others may still ask for. To be called before the
    first array; later calls change nothing. The GPU is the one that JAX_LOCAL_DEVICE_IDS and
    CUDA_VISIBLE_DEVICES name.

    Raises:
      RuleError: others hold nearly all of it.
    """
    if _memory["chosen"] is not None:
        return
    own = {name: os.environ[name] for name in _OWN_CHOICES if name in os.environ}
    if own:
        _memory.update(chosen=None, reason=f"the user's: {own}")
        return
    found = [_free_and_total_mib(_gpu(number)) for number in range(gpus)]
    known = [pair for pair in found if pair is not None]
    if len(known) < gpus:
        _memory.update(chosen=None, reason="nvidia-smi does not answer; JAX takes its own share")
        return
    free_bytes, total_bytes = (mib * _MIB for mib in min(known, key=lambda pair: pair[0] / pair[1]))
    share = memory_fraction(free_bytes, total_bytes)
    os.environ[_FRACTION] = f"{share:.3f}"
    _memory.update(chosen=share, free_bytes=free_bytes, total_bytes=total_bytes, reason=None)


def arm_nccl(limit_s: float) -> None:
    """NCCL's own watchdog, which XLA leaves off: a collective that takes longer ends the process.

    Twice the limit after which a rank that waits says whom it waits for (`xla/watch.py`): that tells more. To
    be called before XLA reads its flags.
    """
    name, given = "--xla_gpu_nccl_termination_timeout_seconds", os.environ.get("XLA_FLAGS", "")
    if name not in given:
        os.environ["XLA_FLAGS"] = f"{given} {name}={math.ceil(2 * limit_s)}".strip()


def use_one_gpu() -> None:
    """For a process that is alone with one device: it leaves the other GPUs, and their memory, to others."""
    if jax.config.read("jax_cuda_visible_devices") == "all":
        jax.config.update("jax_cuda_visible_devices", "0")


def _setting(name: str) -> Any:
    return getattr(jax.config, name)


def memory_fraction(free_bytes: int, total_bytes: int) -> float:
    """The share of all memory that a process takes.

    Raises:
      RuleError: hardly any is free.
    """
    reserve_bytes = max(1024 * _MIB, total_bytes // 20)
    share = min(_LARGEST, (free_bytes - reserve_bytes) / total_bytes)
    if share < _SMALLEST:
        raise RuleError(
            "A run has memory on its GPU.",
            f"{free_bytes / 1e9:.1f} of {total_bytes / 1e9:.1f} GB are free, {reserve_bytes / 1e9:.1f} kept",
            "end what else runs there (nvidia-smi lists it), or name another GPU in CUDA_VISIBLE_DEVICES",
        )
    return share


def _gpu(number: int) -> str:
    """The number or UUID of this process's GPU as the driver knows it, of several the one of that number."""
    local = int((os.environ.get("JAX_LOCAL_DEVICE_IDS") or "0").split(",")[0]) + number
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[local] if local < len(visible) else str(local)


def _free_and_total_mib(gpu: str) -> tuple[int, int] | None:
    query = ["nvidia-smi", "--query-gpu=memory.free,memory.total", "--format=csv,noheader,nounits", "-i", gpu]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
        free, total = done.stdout.strip().splitlines()[0].split(",")
        return int(free), int(total)
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def use_cache() -> None:
    """Where JAX_COMPILATION_CACHE_DIR names a folder, every program is kept there, however small."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def describe() -> dict[str, Any]:
    """What was chosen, for the manifest."""
    return {
        "memory": _memory,
        "compile_cache": {
            "folder": _setting("jax_compilation_cache_dir"),
            "xla": _setting("jax_persistent_cache_enable_xla_caches"),
        },
        "nccl": sorted(libraries("libnccl")),
    }


def libraries(name: str) -> set[str]:
    """Files of a library that are mapped into this process."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return set()
    return set(re.findall(rf"(/\S*/{name}[^/\s]*\.so[^/\s]*)$", maps, re.MULTILINE))


def refuse_two_nccl() -> None:
    """Makes sure that one NCCL is loaded at most: two in a process corrupt each other's communicators.

    Raises:
      RuleError: both files are named.
    """
    found = {str(Path(file).resolve()) for file in libraries("libnccl")}
    if len(found) > 1:
        raise RuleError(
            "A process holds one libnccl.",
            ", ".join(sorted(found)),
            "do not import torch or another framework with NCCL into a process of JAX",
        )
