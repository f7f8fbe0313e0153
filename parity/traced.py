"""The traced passes of a command: each contender once more, behind whatever its run folder already has.

They are made in processes of their own, one launch a side: what CUPTI has looked at is not timed again.
Must not: count; `speed` does.
"""

from collections.abc import Sequence
from pathlib import Path

from parity.folders import last_number
from parity.passes import Passes
from parity.plan import Plan
from parity.progress import Progress
from parity.session import Held, hold
from parity.speed import traces
from parity.turns import Turn, joined
from spec.errors import RuleError
from spec.job import Timing


def check(traced: bool, timed: bool) -> None:
    """Refuses a trace whose program could not be compared with a timed one.

    Raises:
      RuleError: it is asked for without timing.
    """
    if traced and not timed:
        raise RuleError(
            "A trace is of a step that is timed too: tracing changes what it looks at.",
            "--trace --no-time",
            "leave one of them out",
        )


def hold_traces(
    plan: Plan,
    folder: Path,
    contenders: Sequence[tuple[str, str | None]],
    timing: Timing,
    held: Sequence[Held],
    progress: Progress,
) -> list[Held]:
    """Traces every contender (side, mode; None is the run's own) and draws what was found; the last one in
    the answer may have failed.

    Args:
      timing: of the timed passes, whose steps are made again.
      held: the launches of those; nothing is traced where one of them failed.
    """
    if any(item.ended.how != "done" for item in held):
        return []
    made, launched = (
        last_number(path.name for path in (folder / part).glob("*")) for part in ("passes", "launches")
    )
    passes = Passes(plan, folder, timing, made)
    by_side = sorted(contenders, key=lambda contender: plan.backends.index(contender[0]))
    turns = joined(Turn(side=side, jobs=(passes.trace(side, mode),)) for side, mode in by_side)
    found = hold(plan, turns, folder, progress, done=launched)
    traces.draw(job for item in found if item.ended.how == "done" for job in item.turn.jobs)
    return found
