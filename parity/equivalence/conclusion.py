"""From the finished passes of all seeds to what they show together.

Must not: start anything, or hold the rule.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from parity.equivalence import rule
from parity.equivalence.statement import Statement
from parity.judge import gate
from parity.judge.align import Measured
from parity.report.equivalence import Equivalence, SeedRow

Passes = Mapping[int, Mapping[str, Path]]
"""Pass folders by seed and side."""


def conclude(stated: Statement, passes: Passes) -> tuple[list[str], Equivalence | None]:
    """Why the sides cannot be compared, or what was found."""
    pairs = {seed: [Measured(side, folder) for side, folder in of.items()] for seed, of in passes.items()}
    refusals = [f"seed {seed}: {why}" for seed, (a, b) in pairs.items() for why in gate.differences(a, b)]
    if refusals:
        return refusals, None
    rows = [_row(seed, a, b) for seed, (a, b) in pairs.items()]
    differences = [row.difference for row in rows if row.difference is not None]
    if len(differences) < len(rows):
        return [], _undecided(stated, rows)
    tested = rule.test(differences, stated.margin)
    return [], Equivalence(
        outcome=tested.outcome,
        quantity=stated.quantity,
        margin=stated.margin,
        window=stated.window,
        alpha=stated.alpha,
        seeds=rows,
        mean=tested.mean,
        spread=tested.spread,
        interval=[tested.low, tested.high],
        p=tested.p,
        seeds_needed=tested.seeds_needed,
        notes=_advice(tested),
    )


def _row(seed: int, a: Measured, b: Measured) -> SeedRow:
    last = {side.label: rule.last_window(side.curve.loss) for side in (a, b)}
    finite = all(map(math.isfinite, last.values()))
    return SeedRow(
        seed=seed,
        last={label: value if math.isfinite(value) else None for label, value in last.items()},
        difference=rule.relative(*last.values()) if finite else None,
    )


def _undecided(stated: Statement, rows: list[SeedRow]) -> Equivalence:
    """Where a loss is not finite: no mean is, and what made it so is not a matter of statistics."""
    lost = [
        f"seed {row.seed} ({', '.join(side for side, value in row.last.items() if value is None)})"
        for row in rows
        if row.difference is None
    ]
    why = f"the last loss is not finite: {', '.join(lost)}; parity run finds out where that begins"
    return untested(stated, why, "INCONCLUSIVE", rows)


def untested(
    stated: Statement,
    why: str,
    outcome: Literal["INCONCLUSIVE"] | None = None,
    rows: list[SeedRow] | None = None,
) -> Equivalence:
    """What was stated, where there are no numbers to test; why not."""
    return Equivalence(
        outcome=outcome,
        quantity=stated.quantity,
        margin=stated.margin,
        window=stated.window,
        alpha=stated.alpha,
        seeds=rows or [],
        mean=None,
        spread=None,
        interval=[],
        p=None,
        seeds_needed=None,
        notes=[why],
    )


def _advice(tested: rule.Tested) -> list[str]:
    """What would decide where nothing is decided."""
    if tested.outcome != "INCONCLUSIVE":
        return []
    if tested.seeds_needed is None:
        return ["the mean difference is the margin itself, as far as any number of seeds can tell"]
    return [f"about {tested.seeds_needed} seeds would decide, in a new test, if mean and spread stay"]
