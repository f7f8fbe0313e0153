"""How many devices there are, asked without a framework, and how many processes are sensible.

Must not: create a CUDA context. What a framework itself can use, `probe` asks in a process of its own.
"""

import os
import shutil
import subprocess

from spec.errors import RuleError
from spec.gpus import describe_gpus


def count_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Memory of this host."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def count_gpus() -> int:
    """NVIDIA GPUs that a new process would see: the driver's, less what CUDA_VISIBLE_DEVICES hides."""
    gpus = describe_gpus()["gpus"]
    present = _listed_by_nvidia_smi() if gpus is None else len(gpus)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    # CUDA stops reading at the first entry that is no device, and -1 is the usual way to write none.
    names = [name.strip() for name in visible.split(",")]
    usable = names.index("-1") if "-1" in names else len([name for name in names if name])
    return min(present, usable)


def _listed_by_nvidia_smi() -> int:
    """The driver's own count, where nvidia-ml-py is missing."""
    if shutil.which("nvidia-smi") is None:
        return 0
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())


def check_processes(device: str, local_processes: int) -> None:
    """Refuses more processes on this host than it has GPUs, or than its cores can sensibly run.

    Raises:
      RuleError: with the number asked for and the number there is.
    """
    if device == "cuda":
        gpus = count_gpus()
        if local_processes > gpus:
            raise RuleError(
                "Every process has a GPU of its own.",
                f"--devices {local_processes}, GPUs on this host: {gpus}",
                f"take --devices {gpus}" if gpus else "take --device cpu",
            )
        return
    cores = count_cores()
    most = max(8, 4 * cores)
    if local_processes > most:
        raise RuleError(
            "A CPU run has at most max(8, 4 x cores) processes.",
            f"--devices {local_processes}, cores {cores}, so at most {most}",
            f"take --devices {most} or fewer",
        )
