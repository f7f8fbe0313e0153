"""Trace: what host and device did in a few steps of a pass, as spans on one clock: `trace.json`.

Whoever traces writes it, whatever the instrument; the referee counts and draws from it. All times are in us
since the trace began. Must not: compute figures.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec import record
from spec.errors import RuleError

FILE = "trace.json"
SCHEMA_VERSION = 1

INSTRUMENTS = ("cupti", "kineto", "jax.profiler")
HOST_KINDS = ("launch", "sync", "other")
"""A launch puts work on a device, a sync waits for one."""
DEVICE_KINDS = ("kernel", "collective", "memcpy", "memset")
"""A collective is a kernel that exchanges data with other devices."""


@dataclass(frozen=True)
class TracedStep:
    """The host's interval from calling a step to its return."""

    number: int
    """Steps that were dispatched before it."""
    begin_us: float
    end_us: float


@dataclass(frozen=True)
class HostSpan:
    """A call that the host made, or an operation of the framework's."""

    name: str
    begin_us: float
    duration_us: float
    kind: str
    """One of `HOST_KINDS`."""
    thread: int
    correlation: int | None = None
    """What the device spans that it caused carry too."""


@dataclass(frozen=True)
class DeviceSpan:
    """Something that a device ran."""

    name: str
    begin_us: float
    duration_us: float
    kind: str
    """One of `DEVICE_KINDS`."""
    device: int
    stream: int
    correlation: int | None = None
    graph_node: int | None = None
    """The node of a graph that it was; None outside graphs."""


@dataclass(frozen=True)
class Program:
    """What shows that a traced and a timed pass did the same."""

    sha256: str | None
    """Of the program that made the steps."""
    end_state_sha256: str | None
    """Of the state after the last step of the pass, traced or not."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A few steps of one process. On a CPU there are no device spans, and host spans are operations."""

    steps: tuple[TracedStep, ...]
    host: tuple[HostSpan, ...]
    device: tuple[DeviceSpan, ...]
    instrument: str
    """One of `INSTRUMENTS`."""
    reason: str | None
    """Why not CUPTI; None where it was."""
    device_name: str
    """The driver's name of the device, or `cpu`."""
    program: Program

    def __post_init__(self) -> None:
        """Refuses what nobody could count.

        Raises:
          RuleError: an unknown word, a time that is none, or steps out of order.
        """
        _check_word("instrument", self.instrument, INSTRUMENTS)
        for span in self.host:
            _check_word("kind of a host span", span.kind, HOST_KINDS)
        for span in self.device:
            _check_word("kind of a device span", span.kind, DEVICE_KINDS)
        for span in (*self.host, *self.device):
            if not math.isfinite(span.begin_us) or not 0 <= span.duration_us < math.inf:
                raise _misfit(f"{span.name} at {span.begin_us} us for {span.duration_us} us")
        before = -math.inf
        for step in self.steps:
            if not before <= step.begin_us <= step.end_us < math.inf:
                raise _misfit(f"step {step.number} from {step.begin_us} to {step.end_us} us")
            before = step.end_us


def program_of(folder: Path, rank: int = 0) -> Program:
    """What a finished pass ran and where it ended, from its manifest and a rank's digest.

    Where no single program makes the step, its mode and what the compiler was told stand for it.
    """
    manifest = json.loads((folder / "manifest.json").read_text())
    known = (manifest["capture"] or {}).get("program_sha256")
    program = [manifest["mode_ran"], manifest["facts"]["compiler_options"], known]
    state = json.loads((folder / f"digest.rank{rank}.json").read_text())
    return Program(sha256=_sha256(program), end_state_sha256=_sha256(state))


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def file_of(rank: int) -> str:
    """The name of a rank's trace; rank 0's is `trace.json`."""
    return f"trace.rank{rank}.json" if rank else FILE


def write(trace: Trace, folder: Path, rank: int = 0) -> Path:
    """Writes the trace of a rank into a pass folder, times to a nanosecond; returns its path."""
    host, device = _Names(), _Names()
    content = {
        "schema_version": SCHEMA_VERSION,
        "instrument": trace.instrument,
        "reason": trace.reason,
        "device_name": trace.device_name,
        "steps": [
            {"number": step.number, "begin_us": _ns(step.begin_us), "end_us": _ns(step.end_us)}
            for step in trace.steps
        ],
        "host": {
            "spans": [[*host.timed(span), span.kind, span.thread, span.correlation] for span in trace.host],
            "names": host.names,
        },
        "device": {
            "spans": [
                [*device.timed(span), span.kind, span.device, span.stream, span.correlation, span.graph_node]
                for span in trace.device
            ],
            "names": device.names,
        },
        "program": {
            "sha256": trace.program.sha256,
            "end_state_sha256": trace.program.end_state_sha256,
        },
    }
    path = folder / file_of(rank)
    record.write_text(path, json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n")
    return path


def read(folder: Path, rank: int = 0) -> Trace:
    """Reads the trace of a rank from a pass folder.

    Raises:
      RuleError: there is none, or it cannot be understood.
    """
    path = folder / file_of(rank)
    try:
        content = json.loads(path.read_text())
        if content["schema_version"] != SCHEMA_VERSION:
            raise _misfit(f"{path}: schema_version {content['schema_version']}, known {SCHEMA_VERSION}")
        return Trace(
            steps=tuple(TracedStep(**step) for step in content["steps"]),
            host=tuple(HostSpan(*_named(span, content["host"])) for span in content["host"]["spans"]),
            device=tuple(DeviceSpan(*_named(span, content["device"])) for span in content["device"]["spans"]),
            instrument=content["instrument"],
            reason=content["reason"],
            device_name=content["device_name"],
            program=Program(**content["program"]),
        )
    except FileNotFoundError:
        raise _misfit(f"no {path}") from None
    except (json.JSONDecodeError, KeyError, IndexError, TypeError) as error:
        raise _misfit(f"{path}: {type(error).__name__} {error}") from None


class _Names:
    """Every name once: a step calls few functions many times."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._index: dict[str, int] = {}

    def timed(self, span: HostSpan | DeviceSpan) -> tuple[int, float, float]:
        """The index of a span's name, and its times."""
        if span.name not in self._index:
            self._index[span.name] = len(self.names)
            self.names.append(span.name)
        return self._index[span.name], _ns(span.begin_us), _ns(span.duration_us)


def _named(span: Sequence[Any], group: dict[str, Any]) -> Iterable[Any]:
    return (group["names"][span[0]], *span[1:])


def _ns(us: float) -> float:
    return round(us, 3)


def _check_word(what: str, word: str, known: Sequence[str]) -> None:
    if word not in known:
        raise _misfit(f"{what}: {word!r}, known: {', '.join(known)}")


def _misfit(numbers: str) -> RuleError:
    return RuleError("A trace can be read and counted.", numbers, "trace again")
