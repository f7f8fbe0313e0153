"""The rows of a benchmark's table: the figures of each contender, and its ratios to others of its block.

Must not: form a ratio of passes that were not measured together.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from parity.bench.blocks import Block, Call
from parity.bench.contenders import Contender
from parity.report.result import BenchRow
from parity.report.speeds import Ratio, SpeedWarning
from parity.speed import conditions, statistics, warnings
from parity.speed.figures import TimePass, side_speed

Passes = Mapping[Contender, Sequence[TimePass]]


def rows(folder: Path, calls: Sequence[Call]) -> list[BenchRow]:
    """A row for each contender of each block that finished a pass, by batch, then as they were measured."""
    found = [row for call in calls for block in call.blocks for row in _of_block(folder, call, block)]
    return sorted(found, key=lambda row: row.batch or 0)


def check(folder: Path, calls: Sequence[Call]) -> None:
    """Reads what the rows are made of, and computes nothing.

    Raises:
      RuleError: a finished pass cannot be read.
    """
    for block in (block for call in calls for block in call.blocks):
        for one in (one for passes in passes_of(folder, block).values() for one in passes):
            one.check()


def passes_of(folder: Path, block: Block) -> Passes:
    """The finished passes of a block by contender; contenders without one are left out."""
    found = {contender: block.finished(folder, contender) for contender in block.contenders}
    return {contender: passes for contender, passes in found.items() if passes}


def told(folder: Path, calls: Sequence[Call]) -> list[SpeedWarning]:
    """The warnings of all blocks; where there are several, each says in which one."""
    seen = conditions.read(folder / "launches")
    found = list(warnings.of_machine(seen))
    batches = {block.batch for call in calls for block in call.blocks}
    for call in calls:
        for block in call.blocks:
            at = [f"batch {block.batch}"] * (len(batches) > 1) + [f"call {call.number}"] * (len(calls) > 1)
            for (side, mode), passes in passes_of(folder, block).items():
                where = ", ".join([f"{side} {mode}", *at])
                found += warnings.of_contender(where, passes, seen)
    return found


def _of_block(folder: Path, call: Call, block: Block) -> list[BenchRow]:
    passes = passes_of(folder, block)
    speeds = {contender: side_speed(own) for contender, own in passes.items()}
    timed = {
        contender: speed
        for contender, speed in speeds.items()
        if speed is not None and speed.step_ms is not None
    }
    found = []
    for (side, mode), speed in timed.items():
        own = passes[side, mode][0].job.spec.execution.mode(side)
        peers = {
            name: other.step_ms.median
            for (of, name), other in timed.items()
            if of == side and name.startswith("baseline:") and other.step_ms is not None
        }
        peer = min(peers, key=lambda name: peers[name], default=None)
        found.append(
            BenchRow(
                side=side,
                mode=mode,
                speed=speed,
                ratio_to_own=_ratio(passes, side, mode, own),
                steps=sum(one.steps for one in passes[side, mode]),
                batch=block.batch,
                invocation=call.number,
                ratio_to_peer=_ratio(passes, side, mode, peer),
                peer=peer,
                is_own=mode == own,
            )
        )
    return found


def _ratio(passes: Passes, side: str, mode: str, other: str | None) -> Ratio | None:
    """Step times of a mode over those of another of the same side; None where that one was not timed."""
    if other is None or mode == other or (side, other) not in passes:
        return None
    a, b = ([one.step_ms for one in passes[side, name]] for name in (mode, other))
    return statistics.ratio(a, b)
