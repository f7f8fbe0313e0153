"""Everything around a run that can change a number, apart from what a framework alone knows.

Each side adds its own part (versions of CUDA libraries, flags, devices as it sees them). Must not: import a
framework, or fail: what cannot be told is null with a reason beside it.
"""

import datetime
import hashlib
import os
import platform
import re
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from spec.checkout import describe_checkout
from spec.gpus import describe_gpus

PACKAGES = re.compile(
    r"torch|jax|jaxlib|flax|optax|numpy|triton|safetensors|ml[-_.]dtypes|nvidia[-_.].*|jax[-_.]cuda.*"
)
"""Installed distributions whose version can change a number."""

VARIABLES = (
    "TORCH",
    "PYTORCH_",
    "TRITON_",
    "CUDA_",
    "CUDNN_",
    "CUBLAS_",
    "NCCL_",
    "XLA_",
    "JAX_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "KMP_",
    "GOMP_",
    "NPY_",
    "GLOO_",
    "TF_CPP_",
    "TF_XLA_",
    "NVIDIA_",
    "LD_PRELOAD",
)
"""Prefixes of the environment variables that can change a number or a speed."""

LEFT_OUT = "(left out)"
"""Stands for a value that may be a secret."""

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"://[^/\s]*@|\b(hf|ghp|gho|ghs|glpat|sk|xox[abp])[-_][A-Za-z0-9]{8}|\bBearer\b")


def describe_environment() -> dict[str, Any]:
    """The manifest's `environment`, ready for JSON."""
    return {
        "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "argv": [LEFT_OUT if looks_secret("", word) else word for word in sys.argv],
        "host_hash": hashlib.sha256(platform.node().encode()).hexdigest()[:12],
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "platform": platform.platform(),
        "kernel": platform.release(),
        "cpu": describe_cpu(),
        "packages": package_versions(),
        "variables": describe_variables(os.environ),
        "code": _code(),
        **describe_gpus(),
    }


@cache
def _code() -> dict[str, Any]:
    """As it was when this process first asked: what is changed later is not what runs."""
    return describe_checkout()


def describe_cpu() -> dict[str, Any]:
    """Model name, logical cores of the machine, and those that this process may use."""
    model, cpuinfo = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        named = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
        model = named.group(1).strip() if named else model
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"model": model, "count": os.cpu_count(), "usable": usable}


@cache
def package_versions() -> dict[str, str]:
    """Versions of the installed packages that `PACKAGES` matches, by normalised name."""
    found = {}
    for distribution in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        # The first on the path is the one that is imported.
        if PACKAGES.fullmatch(name):
            found.setdefault(name, distribution.version)
    return dict(sorted(found.items()))


def describe_variables(environ: dict[str, str] | os._Environ[str]) -> dict[str, str]:
    """The variables that `VARIABLES` names; what may be a secret keeps its name and loses its value."""
    kept = {name: value for name, value in sorted(environ.items()) if name.startswith(VARIABLES)}
    return {name: LEFT_OUT if looks_secret(name, value) else value for name, value in kept.items()}


def looks_secret(name: str, value: str) -> bool:
    """Whether a name speaks of a secret, or a value has the shape of one (token, password in an address)."""
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))
