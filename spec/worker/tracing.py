"""What a `trace` job traces with, and how what it found becomes `trace.json`.

An instrument that was there before the framework, CUPTI under `python -m parity.tracer`, is offered here;
where none is, a side takes its framework's own profiler. Must not: know one instrument from another.
"""

import json
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from spec import trace
from spec.errors import ExitCode, RuleError
from spec.job import Job
from spec.trace import DeviceSpan, HostSpan, Trace, TracedStep

_Span = TypeVar("_Span", HostSpan, DeviceSpan)

NOT_STARTED = "the process was not started by python -m parity.tracer"

_VERSION = re.compile(r"(_v\d+|_ptsz|_ptds)+$")
_LAUNCH = re.compile(r"cu(da)?(64)?(Launch(?!HostFunc)|GraphLaunch|Memcpy|Memset)")
_COLLECTIVE = re.compile(r"nccl|all_?reduce|all_?gather|reduce_?scatter", re.IGNORECASE)


class TraceFailed(RuleError):
    """An instrument was there and saw nothing of what ran."""

    code = ExitCode.CRASHED


@dataclass(frozen=True, kw_only=True)
class Found:
    """What an instrument saw, on its own clock, in us."""

    instrument: str
    reason: str | None
    """Why not CUPTI."""
    steps: tuple[TracedStep, ...]
    host: tuple[HostSpan, ...]
    device: tuple[DeviceSpan, ...]


class Instrument(Protocol):
    """Sees the host's calls and the device's work between `start` and `stop`."""

    def start(self) -> None:
        """From here on; the device is idle."""
        ...

    def step(self, number: int) -> AbstractContextManager[None]:
        """Around the call of one step; `number` of them were dispatched before it."""
        ...

    def stop(self) -> Found | None:
        """What was seen until now, the device idle again; None of a rank that is not traced."""
        ...


class Untraced:
    """The instrument of a rank that is not traced: it makes the same steps as the others."""

    def start(self) -> None:
        """Nothing."""

    def step(self, number: int) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()

    def stop(self) -> Found | None:
        """Nothing."""
        return None


_offered: list[Instrument] = []
_refusals: list[str] = []


def offer(instrument: Instrument) -> None:
    """The instrument of this process, from here on."""
    _offered[:] = [instrument]


def refuse(reason: str) -> None:
    """This process is to be traced, and CUPTI cannot do it."""
    _refusals[:] = [reason]


def instrument(rank: int, own: Callable[[str], Instrument]) -> Instrument:
    """What this process traces with: what was offered, else the framework's own profiler on rank 0.

    Args:
      own: makes that profiler; takes the reason why it is not CUPTI.
    """
    if _offered:
        return _offered[0]
    if _refusals:
        return own(_refusals[0])
    return own(NOT_STARTED) if rank == 0 else Untraced()


def write(job: Job, found: Found | None, rank: int) -> None:
    """Writes the trace of a rank, the pass being finished: manifest and digest are read.

    Raises:
      TraceFailed: steps are missing, or no kernel was seen on a GPU.
    """
    if found is None:
        return
    if len(found.steps) < 2:
        raise TraceFailed(
            "Every traced step is marked.",
            f"{found.instrument} has {len(found.steps)} of {job.timing.traced_steps}",
            "trace again",
        )
    folder, device = Path(job.out), job.spec.execution.device
    if device == "cuda" and not any(span.kind == "kernel" for span in found.device):
        raise TraceFailed(
            "A traced step on a GPU runs kernels.",
            f"{found.instrument} saw {len(found.host)} calls and {len(found.device)} device spans, no kernel",
            "another profiler may hold the device (nsys, DCGM); run without --trace meanwhile",
        )
    origin = found.steps[0].begin_us
    made = Trace(
        steps=tuple(
            TracedStep(step.number, step.begin_us - origin, step.end_us - origin) for step in found.steps
        ),
        host=tuple(_since(span, origin) for span in _during(found.host, origin)),
        device=tuple(_since(span, origin) for span in _during(found.device, origin)),
        instrument=found.instrument,
        reason=found.reason,
        device_name=_device_name(folder) if device == "cuda" else "cpu",
        program=trace.program_of(folder, rank),
    )
    trace.write(made, folder, rank)


def plain_name(name: str) -> str:
    """The name of a driver's or runtime's function without its version and kind of stream."""
    return _VERSION.sub("", name)


def host_kind(name: str) -> str:
    """The kind of a host span, by the name of the driver's or runtime's function."""
    if _LAUNCH.match(name):
        return "launch"
    return "sync" if name.startswith("cu") and "Synchronize" in name else "other"


def kernel_kind(name: str) -> str:
    """`collective` or `kernel`, by the name of a kernel; NCCL's and XLA's own collectives carry theirs."""
    return "collective" if _COLLECTIVE.search(name) else "kernel"


def _during(spans: Iterable[_Span], begin_us: float) -> list[_Span]:
    """Spans from the first step on, in order; what came before is of the warm-up."""
    return sorted((span for span in spans if span.begin_us >= begin_us), key=lambda span: span.begin_us)


def _since(span: _Span, origin: float) -> _Span:
    return replace(span, begin_us=span.begin_us - origin)


def _device_name(folder: Path) -> str:
    manifest = json.loads((folder / "manifest.json").read_text())
    gpus = manifest["environment"].get("gpus") or [{}]
    return str(gpus[0].get("name") or "cuda")
