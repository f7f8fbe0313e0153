"""What each framework says of itself, asked in a process of its own: the referee stays free of both."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from spec.errors import RuleError

_ROOT = Path(__file__).resolve().parent.parent

_QUESTIONS = {
    "torch": """
import json, torch
cuda = torch.cuda.is_available()
gpus = torch.cuda.device_count() if cuda else 0
nccl = ".".join(map(str, torch.cuda.nccl.version())) if cuda else None
gloo = torch.distributed.is_available() and torch.distributed.is_gloo_available()
print(json.dumps({"versions": {"torch": torch.__version__}, "gpus": gpus, "nccl": nccl, "gloo": gloo}))
""",
    "jax": """
import json, flax, jax, optax
devices = [d for d in jax.local_devices() if d.platform in ("gpu", "cuda")]
versions = {"jax": jax.__version__, "flax": flax.__version__, "optax": optax.__version__}
print(json.dumps({"versions": versions, "gpus": len(devices), "nccl": None, "gloo": True}))
""",
}
_PACKAGES = {"torch": ("torch",), "jax": ("jax", "flax", "optax")}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one framework can do here."""

    usable: bool
    versions: dict[str, str] = field(default_factory=dict)
    gpus: int = 0
    nccl: str | None = None
    gloo: bool = False
    problem: str = ""
    """Why it is not usable, in one line."""


def install_line(side: str) -> str:
    """The command that installs what a side needs."""
    return f"in the project's folder: pip install -e '.[{side}]'"


def missing_packages(side: str) -> list[str]:
    """Packages of a side that are not installed; nothing is imported to find out."""
    return [name for name in _PACKAGES[side] if find_spec(name) is None]


def check_installed(side: str) -> None:
    """Refuses a side whose framework is not installed.

    Raises:
      RuleError: with the line that installs it.
    """
    missing = missing_packages(side)
    if missing:
        raise RuleError(
            f"The {side} side needs its framework.",
            f"not installed in {sys.executable}: {', '.join(missing)}",
            install_line(side),
        )


def ask_all(sides: Sequence[str]) -> dict[str, Answer]:
    """`ask` for several sides at once."""
    with ThreadPoolExecutor() as pool:
        return dict(zip(sides, pool.map(ask, sides), strict=True))


def ask_xla_flags(timeout_s: float = 120.0) -> dict[str, str | bool]:
    """Whether the installed jaxlib takes the XLA_FLAGS of this environment: ok, found, mend."""
    done = subprocess.run(
        [sys.executable, "-m", "jax_impl.xla.flags"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"ok": False, "found": words[-1][:200], "mend": install_line("jax")}
    return json.loads(done.stdout)


def ask(side: str, timeout_s: float = 120.0) -> Answer:
    """Imports a framework in a fresh process and reports what it sees."""
    missing = missing_packages(side)
    if missing:
        return Answer(usable=False, problem=f"not installed: {', '.join(missing)}")
    # JAX would take most of a GPU's memory only to count devices.
    environ = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _QUESTIONS[side]],
            env=environ,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(usable=False, problem=f"no answer within {timeout_s:g} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Answer(usable=False, problem=words[-1][:200])
    return Answer(usable=True, **json.loads(lines[-1]))
