"""`parity doctor`: what this machine can do, each capability ok or missing, with the line that mends it.

The frameworks are asked in processes of their own. Must not: change anything.
"""

import ctypes.util
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from parity import probe
from parity.commands import free_port
from parity.devices import count_cores, count_gpus
from parity.options import Doctor
from parity.report.fitting import terminal_width
from spec.errors import ExitCode
from spec.run import SIDES

_PACKAGES = ("numpy", "safetensors", "ml_dtypes", "msgspec", "jinja2", "rich", "tyro")


@dataclass(frozen=True)
class Capability:
    """One line of the answer."""

    name: str
    ok: bool
    found: str
    mend: str = ""


def doctor(options: Doctor) -> ExitCode:
    """Prints every capability; SAME where at least one side is usable, else USAGE."""
    answers = probe.ask_all(SIDES)
    lines = [
        *_python(),
        *(_side(side, answer) for side, answer in answers.items()),
        *_xla_flags(),
        *_gpus(answers),
        *_processes(answers),
        *_tools(),
        _writable(Path(options.out)),
    ]
    usable = [side for side, answer in answers.items() if answer.usable]
    _print(usable, lines)
    return ExitCode.SAME if usable else ExitCode.USAGE


def _print(usable: list[str], lines: list[Capability]) -> None:
    console = Console(highlight=False, markup=False, width=terminal_width() or 160)
    console.print(f"usable sides: {', '.join(usable) or 'none'}", style="bold")
    table = Table("capability", "", "found", "to mend it", box=box.SIMPLE_HEAD, pad_edge=False)
    for line in lines:
        table.add_row(line.name, "ok" if line.ok else "missing", line.found, "" if line.ok else line.mend)
    console.print(table)


def _python() -> Iterator[Capability]:
    yield Capability("python", True, platform.python_version())
    for name in _PACKAGES:
        present = find_spec(name) is not None
        yield Capability(
            name, present, metadata.version(name) if present else "not installed", f"pip install {name}"
        )


def _side(side: str, answer: probe.Answer) -> Capability:
    found = ", ".join(f"{name} {version}" for name, version in answer.versions.items()) or answer.problem
    return Capability(side, answer.usable, found, probe.install_line(side))


def _xla_flags() -> Iterator[Capability]:
    if not probe.missing_packages("jax"):
        answer = probe.ask_xla_flags()
        yield Capability("XLA_FLAGS", bool(answer["ok"]), str(answer["found"]), str(answer["mend"]))


def _gpus(answers: dict[str, probe.Answer]) -> Iterator[Capability]:
    present = count_gpus()
    yield Capability("GPUs", bool(present), f"{present} by the driver", "none is needed for CPU runs")
    for side, answer in answers.items():
        if present and answer.usable:
            mend = f"install a CUDA build of {side}"
            yield Capability(f"GPUs in {side}", answer.gpus == present, str(answer.gpus), mend)
    if present:
        nccl = answers["torch"].nccl
        yield Capability("NCCL", nccl is not None, nccl or "torch has none", "install a CUDA build of torch")


def _processes(answers: dict[str, probe.Answer]) -> Iterator[Capability]:
    yield Capability("cores", True, str(count_cores()))
    try:
        yield Capability("loopback port", True, str(free_port()))
    except OSError as error:
        yield Capability("loopback port", False, str(error), "processes meet on 127.0.0.1: bring lo up")
    if answers["torch"].usable:
        gloo = answers["torch"].gloo
        mend = "install a build of torch with gloo; one process works"
        yield Capability("gloo", gloo, "in torch" if gloo else "not in torch", mend)


def _tools() -> Iterator[Capability]:
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX") or "g++", "clang++"))), None)
    yield Capability(
        "C++ compiler",
        compiler is not None,
        compiler or "no g++ or clang++",
        "torch=inductor on a CPU needs one: apt-get install g++",
    )
    library = find_spec("cupti") is not None or ctypes.util.find_library("cupti") is not None
    yield Capability(
        "CUPTI",
        library,
        "found" if library else "not found",
        "in the project's folder: pip install -e '.[gpu]' (GPU traces only)",
    )


def _writable(out: Path) -> Capability:
    mend = "give --out a writable folder"
    existing = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return Capability("run folders", True, f"{out} can be written")
    except OSError as error:
        return Capability("run folders", False, f"{out}: {error.strerror}", mend)
