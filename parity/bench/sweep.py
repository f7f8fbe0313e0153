"""A benchmark over several batches: which, what is declared of it beforehand, and what its points show.

Must not: start anything; `command.py` does.
"""

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parity import given_data
from parity.bench import crossing, host_model
from parity.bench.blocks import Block, Call
from parity.bench.contenders import Contender
from parity.bench.rows import passes_of
from parity.devices import memory_bytes
from parity.plan import Plan
from parity.report.speeds import Sweep, SweepPoint
from parity.speed.figures import TimePass
from parity.speed.statistics import spread
from spec.data.batches import RowSource
from spec.errors import RuleError
from spec.job import PREPARED_BATCHES

TARGET = 0.1
"""A prediction that is off by less is a good one."""

_MEANING = {
    "cuda": "the host launches, and the device computes meanwhile: the larger of the two is the step",
    "cpu": (
        "there is no device apart: host is what a step costs however few rows it has (Python, dispatch, the "
        "optimizer), device what grows with its rows, and both run on the same cores"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The batches of a sweep, in rows of a step over all devices, and those that the model is fitted on."""

    batches: tuple[int, ...]
    fitted: tuple[int, ...]

    def declared(self) -> dict[str, list[int]]:
        """For `run.json`."""
        return {"batches": list(self.batches), "fitted": list(self.fitted)}


def parse(text: str | None, plan: Plan, global_batch: int | None = None) -> Axis | None:
    """The sweep of `batch=1..256` or `batch=1,4,16`, rows of each device; None where none was asked for.

    `A..B` is A, doubled as long as it stays below B, and B. The model is fitted on the two smallest and the
    two largest batches and predicts the others.

    Args:
      global_batch: what was asked for beside it.

    Raises:
      RuleError: it is not so written, the problem's rows cannot be chosen, the data do not have them, or
        there is no memory for them.
    """
    if text is None:
        return None
    match = re.fullmatch(r"batch=(?:(\d+)\.\.(\d+)|(\d+(?:,\d+)*))", text)
    rows = _rows(match) if match else []
    if len(rows) < 2 or rows[0] < 1:
        raise RuleError(
            "A sweep names batches, two at least.", f"--sweep {text}", "--sweep batch=1..256 or batch=1,4,16"
        )
    if plan.pair is not None:
        raise RuleError(
            "A sweep chooses the rows of a step.",
            f"--sweep {text} with a pair, whose batches(step) chooses them",
            "take a preset, or bench the pair once for each of its batches",
        )
    if global_batch is not None:
        raise RuleError(
            "A sweep chooses the rows of a step.",
            f"--sweep {text} --global-batch {global_batch}",
            "leave one of them out; a sweep's batches are rows a device",
        )
    batches = tuple(count * plan.spec.execution.world_size for count in rows)
    axis = Axis(batches=batches, fitted=tuple(sorted({*batches[:2], *batches[-2:]})))
    for batch in batches:
        with_batch(plan, batch)
    # Data that have the rows of the largest batch have those of every other.
    source = given_data.check(with_batch(plan, batches[-1]).spec.problem, steps=0, timed=True)
    _check_memory(text, source, batches[-1], plan.spec.execution.world_size)
    return axis


def _check_memory(text: str, source: RowSource, batch: int, devices: int) -> None:
    """Refuses rows that cannot be made: the largest batch would end a sweep of hours."""
    arrays = source.batch_spec(batch).values()
    needed = PREPARED_BATCHES * sum(math.prod(shape) * dtype.itemsize for shape, dtype in arrays)
    memory = memory_bytes()
    if needed > memory:
        most = memory * batch // needed // devices
        raise RuleError(
            "The rows of a sweep fit into the host's memory, those of a model's layers left aside.",
            f"--sweep {text}: {PREPARED_BATCHES} prepared batches of {batch:,} rows are "
            f"{needed / 2**30:,.0f} GiB, and the host has {memory / 2**30:,.0f}",
            f"end far below {most:,} rows a device",
        )


def _rows(match: re.Match[str]) -> list[int]:
    first, last, listed = match.groups()
    if listed:
        return sorted({int(word) for word in listed.split(",")})
    rows, stop = [int(first)], int(last)
    while 0 < rows[-1] < stop:
        rows.append(min(2 * rows[-1], stop))
    return rows


def with_batch(plan: Plan, batch: int) -> Plan:
    """The plan with another global batch.

    Raises:
      RuleError: processes times micro-batches do not divide it.
    """
    problem = dataclasses.replace(plan.spec.problem, global_batch=batch)
    return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, problem=problem))


def left(axis: Axis, folder: Path, calls: Sequence[Call], contenders: Sequence[Contender]) -> list[int]:
    """Batches of which no block has all contenders, timed to the end."""
    blocks = [block for call in calls for block in call.blocks]
    whole = {block.batch for block in blocks if block.whole(folder, contenders)}
    return [batch for batch in axis.batches if batch not in whole]


def results(axis: Axis, folder: Path, calls: Sequence[Call], device: str) -> Sweep:
    """What the points that are finished by now show."""
    measured = [(call.number, block) for call in calls for block in call.blocks]
    chosen = _chosen(folder, measured)
    observed = {
        contender: {batch: passes for (who, batch), (_, passes) in chosen.items() if who == contender}
        for contender in dict.fromkeys(contender for contender, _ in chosen)
    }
    medians = {
        who: {batch: _median(passes) for batch, passes in own.items()} for who, own in observed.items()
    }
    models = host_model.fit(medians, axis.fitted)
    points = [
        _point(
            contender,
            batch,
            number,
            passes,
            axis,
            models if host_model.has_model(medians[contender], axis.fitted) else (),
        )
        for (contender, batch), (number, passes) in chosen.items()
    ]
    predicted = [point for point in points if not point.fitted and point.error is not None]
    return Sweep(
        batches=list(axis.batches),
        fitted=list(axis.fitted),
        points=points,
        crossings=_crossings(folder, measured, list(observed)),
        model=models,
        within=[sum(abs(point.error or 0.0) <= TARGET for point in predicted), len(predicted)],
        target=TARGET,
        meaning=_MEANING[device],
    )


Measured = Sequence[tuple[int, Block]]
"""Blocks with the number of the call that measured them."""


def _chosen(folder: Path, measured: Measured) -> dict[tuple[Contender, int], tuple[int, Sequence[TimePass]]]:
    """For each contender and batch, the call and passes of the block with most passes, the latest of them."""
    found: dict[tuple[Contender, int], tuple[int, Sequence[TimePass]]] = {}
    for number, block in measured:
        for contender, passes in passes_of(folder, block).items():
            key = contender, block.batch
            if key not in found or len(passes) >= len(found[key][1]):
                found[key] = number, passes
    return dict(sorted(found.items(), key=lambda item: item[0][1]))


def _median(passes: Sequence[TimePass]) -> float:
    found = spread([sample for one in passes for sample in one.step_ms])
    assert found is not None, "a finished pass has windows"
    return found.median


def _point(
    contender: Contender,
    batch: int,
    number: int,
    passes: Sequence[TimePass],
    axis: Axis,
    models: Sequence[host_model.HostModel],
) -> SweepPoint:
    side, mode = contender
    found = spread([sample for one in passes for sample in one.step_ms])
    assert found is not None, "a finished pass has windows"
    predicted = next((host_model.predict(one, mode, batch) for one in models if one.side == side), None)
    return SweepPoint(
        side=side,
        mode=mode,
        batch=batch,
        invocation=number,
        step_ms=found,
        fitted=batch in axis.fitted and predicted is not None,
        predicted_ms=predicted,
        error=None if predicted is None else predicted / found.median - 1,
    )


def _crossings(folder: Path, measured: Measured, contenders: list[Contender]) -> list[crossing.Crossing]:
    """Between the first contenders of both sides, and between a side's first and each of its others."""
    firsts = {side: (side, mode) for side, mode in reversed(contenders)}
    pairs = [(firsts[side], one) for side, *_ in firsts.values() for one in contenders if one[0] == side]
    pairs = [(a, b) for a, b in pairs if a != b]
    if len(firsts) == 2:
        pairs.insert(0, (firsts["torch"], firsts["jax"]))
    found = []
    for a, b in pairs:
        curve: dict[int, crossing.Pair] = {}
        for _, block in measured:
            passes = passes_of(folder, block)
            if a in passes and b in passes:
                # Of several blocks the latest.
                own, other = ([one.step_ms for one in passes[who]] for who in (a, b))
                curve[block.batch] = (own, other)
        if len(curve) > 1:
            found += crossing.find(" ".join(a), " ".join(b), curve)
    return found
