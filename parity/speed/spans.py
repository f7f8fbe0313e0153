"""A trace taken apart: which calls count, which of them caused what on the device, and which step that was.

Must not: compute a figure; `tracing` does.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from parity.speed.intervals import Interval
from spec.trace import DeviceSpan, HostSpan, Trace

_SETTLING_STEPS = 4
"""Steps until a trace shows what comes later: an instrument first makes a graph's nodes known to itself. That
took PyTorch's first step 3 ms instead of 0.3, and JAX's first three, each a graph of its own, 12 to 19."""


_CHANGES = re.compile(r"cu(da)?Graph(Exec\w*SetParams|ExecUpdate|NodeSetEnabled)")
"""Calls that change a graph which is ready to be launched; one that is only described may change unseen."""


def is_graph_launch(call: HostSpan) -> bool:
    """Whether a call launches a graph."""
    return call.kind == "launch" and "GraphLaunch" in call.name


def outer_launches(host: Sequence[HostSpan]) -> dict[int, HostSpan]:
    """Launches by the index of each launch span, in order of time: a call made inside another launch of its
    thread (a driver's inside a runtime's) is that other one."""
    return _outer((index, span) for index, span in enumerate(host) if span.kind == "launch")


def _outer(calls: Iterable[tuple[int, HostSpan]]) -> dict[int, HostSpan]:
    """The outermost of these calls around each of them, itself included, by index and in order of time."""
    outer: dict[int, HostSpan] = {}
    last: dict[int, HostSpan] = {}
    for index, span in sorted(calls, key=lambda item: (item[1].begin_us, -item[1].duration_us)):
        around = last.get(span.thread)
        if around is None or span.begin_us >= around.begin_us + around.duration_us:
            around = last[span.thread] = span
        outer[index] = around
    return outer


@dataclass(frozen=True)
class Launched:
    """One launch and what it caused."""

    call: HostSpan
    caused: tuple[DeviceSpan, ...]


@dataclass(frozen=True)
class Updated:
    """A launch of a graph, and the calls by which its thread changed graphs since it last launched one."""

    launch: HostSpan
    calls: tuple[HostSpan, ...]


@dataclass(frozen=True)
class Step:
    """One traced call of a step, up to the next one: reading metrics is inside."""

    steps: int
    """Training steps that it makes; more than one where a launch makes several."""
    period_us: float | None
    """From its begin to the next one's; None of the last."""
    launches: tuple[Launched, ...]
    work: tuple[DeviceSpan, ...]
    """All that it had a device do, in order."""
    updated: tuple[Updated, ...]
    """Its launches of graphs that had been changed."""


class Parted:
    """A trace by steps, of the first of the process's devices."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        first = min((span.device for span in trace.device), default=0)
        self.device = tuple(
            sorted((span for span in trace.device if span.device == first), key=lambda span: span.begin_us)
        )

    @cached_property
    def _outer(self) -> dict[int, HostSpan]:
        return outer_launches(self._trace.host)

    @cached_property
    def _causes(self) -> dict[int, HostSpan]:
        """The launch that counts behind each correlation, that of a call inside it included."""
        host = self._trace.host
        known = ((host[index].correlation, call) for index, call in self._outer.items())
        return {correlation: call for correlation, call in known if correlation is not None}

    def _cause(self, span: DeviceSpan) -> HostSpan | None:
        return None if span.correlation is None else self._causes.get(span.correlation)

    @property
    def unmatched(self) -> int:
        """Device spans that no launch in the trace is known to have caused."""
        return sum(self._cause(span) is None for span in self.device)

    @cached_property
    def launches(self) -> list[Launched]:
        """Every launch that counts, in order of time."""
        calls = {id(call): call for call in self._outer.values()}
        caused: dict[int, list[DeviceSpan]] = {}
        for span in self.device:
            if (call := self._cause(span)) is not None:
                caused.setdefault(id(call), []).append(span)
        return [Launched(call, tuple(caused.get(key, ()))) for key, call in calls.items()]

    @cached_property
    def updated(self) -> list[Updated]:
        """Every launch of a graph that was changed before it, in order of time."""
        host = enumerate(self._trace.host)
        changes = _outer((index, span) for index, span in host if _CHANGES.match(span.name))
        graphs = [one.call for one in self.launches if is_graph_launch(one.call)]
        calls = {id(call): call for call in (*changes.values(), *graphs)}
        found, pending = [], dict[int, list[HostSpan]]()
        for call in sorted(calls.values(), key=lambda call: call.begin_us):
            if not is_graph_launch(call):
                pending.setdefault(call.thread, []).append(call)
            elif call.thread in pending:
                found.append(Updated(call, tuple(pending.pop(call.thread))))
        return found

    @cached_property
    def steps(self) -> list[Step]:
        """Every traced step."""
        marks = self._trace.steps
        begins = [mark.begin_us for mark in marks]
        launches: list[list[Launched]] = [[] for _ in marks]
        work: list[list[DeviceSpan]] = [[] for _ in marks]
        updated: list[list[Updated]] = [[] for _ in marks]
        for launched in self.launches:
            launches[_step_at(begins, launched.call.begin_us)].append(launched)
        for one in self.updated:
            updated[_step_at(begins, one.launch.begin_us)].append(one)
        for span in self.device:
            # A device runs behind its host, so the cause tells the step, and time only where none is known.
            work[_step_at(begins, (self._cause(span) or span).begin_us)].append(span)
        made = [after.number - before.number for before, after in pairwise(marks)]
        periods = [after - before for before, after in pairwise(begins)]
        numbers = [*made, *(made[-1:] or [1])]
        rows = zip(numbers, [*periods, None], launches, work, updated, strict=True)
        return [
            Step(number, period, tuple(own), tuple(ran), tuple(changed))
            for number, period, own, ran, changed in rows
        ]

    @property
    def settled(self) -> list[Step]:
        """The traced steps that figures are of."""
        return self.steps[settling(len(self.steps)) :]


def settling(num_steps: int) -> int:
    """How many steps at the beginning of a trace of so many are left out; at most half of them, but one."""
    return max(1, min(_SETTLING_STEPS, num_steps // 2))


def _step_at(begins: Sequence[float], time_us: float) -> int:
    """The last step that had begun."""
    return max(0, bisect_right(begins, time_us) - 1)


def interval(span: DeviceSpan | HostSpan) -> Interval:
    """Begin and end, in us."""
    return span.begin_us, span.begin_us + span.duration_us
