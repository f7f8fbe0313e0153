"""What the page reads of a run folder beside its result: curves, raw samples, manifests, captures, traces.

A run may have been killed at any moment, or stripped to what is worth keeping, so a file that is missing or
damaged is left out and never an error. Must not: judge or write.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from parity.judge.align import Curve, read_curve
from parity.speed.figures import TimePass
from spec import trace
from spec.errors import RuleError
from spec.run import SIDES


@dataclass(frozen=True)
class Pass:
    """One pass folder."""

    folder: Path
    side: str
    purpose: str

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What the side said of itself; empty where it was ended before."""
        return read_object(self.folder / "manifest.json")

    @cached_property
    def mode(self) -> str:
        """The mode that it was asked for."""
        asked = self.manifest.get("mode_asked") or read_object(self.folder / "job.json").get("mode")
        return str(asked or "")

    @cached_property
    def capture(self) -> dict[str, Any]:
        """What the side says of its captured or compiled step; empty where there is none."""
        return read_object(self.folder / "capture.json") or self.manifest.get("capture") or {}

    def curve(self) -> Curve | None:
        """Its steps, as many as all ranks wrote."""
        ranks = len(list(self.folder.glob("steps.rank*.jsonl")))
        try:
            curve = read_curve(self.folder, ranks) if ranks else None
        except (RuleError, KeyError, ValueError):
            return None
        return curve if curve is not None and curve.num_steps else None

    def step_ms(self) -> tuple[float, ...]:
        """Its windows, one mean step time each."""
        try:
            return tuple(TimePass(self.folder).step_ms)
        except (RuleError, KeyError, ValueError):
            return ()

    def trace(self) -> trace.Trace | None:
        """What host and device did."""
        try:
            return trace.read(self.folder)
        except RuleError:
            return None


@dataclass(frozen=True)
class RunFolder:
    """A run folder."""

    path: Path

    @cached_property
    def run(self) -> dict[str, Any]:
        """`run.json`: what was asked, and where."""
        return read_object(self.path / "run.json")

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """Its passes, in the order they were run."""
        return tuple(_passes(self.path))

    def of(self, purpose: str, side: str | None = None) -> list[Pass]:
        """The passes of a purpose."""
        return [one for one in self.passes if one.purpose == purpose and side in (None, one.side)]

    def block(self, call: int, batch: int) -> set[str]:
        """Names of the passes that a call of `parity bench` measured at a batch."""
        said = read_object(self.path / "invocations" / f"{call:03d}.json")
        blocks = [one for one in said.get("blocks") or () if one.get("batch") == batch]
        return {name for one in blocks for name in one.get("passes") or ()}

    def own(self, purpose: str, side: str) -> Pass | None:
        """A side's first pass of a purpose, which is in the run's own precision and no baseline."""
        found = [one for one in self.of(purpose, side) if not one.mode.startswith("baseline:")]
        return found[0] if found else None


def _passes(path: Path) -> Iterator[Pass]:
    for folder in sorted(path.glob("passes/*")):
        said = read_object(folder / "job.json") or read_object(folder / "manifest.json")
        words = folder.name.split("_")
        # The name says the same, for a pass that was ended before it wrote anything.
        side = str(said.get("side", words[1] if len(words) > 2 else ""))
        if side in SIDES:
            yield Pass(folder, side, str(said.get("purpose", words[2] if len(words) > 2 else "")))


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none that can be read."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
