"""A run's speed beside that of a saved one, as lines of the report.

Must not: decide anything; all of it stands in `Against`.
"""

from collections.abc import Iterator
from pathlib import Path

from parity.report.speeds import Against, SpeedChange
from parity.report.words import compact


def reasons(against: Against) -> list[str]:
    """A sentence for each figure beyond its limit, those first that fail."""
    beyond = [one for one in against.changes if one.beyond_limit]
    return [_sentence(against, one) for one in sorted(beyond, key=lambda one: not one.failed)]


def phrase(against: Against | None) -> str:
    """For the verdict line: whether a guarded figure got worse; empty where none did."""
    failed = [one for one in against.changes if one.failed] if against else []
    if not failed or against is None:
        return ""
    return f"SLOWER than {number(against)}: {', '.join(f'{one.side} {one.figure}' for one in failed)}"


def number(against: Against) -> str:
    """The number of the saved run, or its folder's name."""
    return Path(against.folder).name.partition("_")[0]


def lines(against: Against) -> Iterator[list[str]]:
    """For the table of `parity compare`: figure, before, now, ratio, limit."""
    for one in against.changes:
        yield [
            f"{one.side} {one.mode} {one.figure}",
            compact(one.before),
            compact(one.now),
            ratio(one),
            _limit(one),
        ]


def notes(against: Against) -> Iterator[str]:
    """Every figure in a line, and what of the surroundings changed; for the other commands."""
    for one in against.changes:
        if not one.beyond_limit:
            at = f"{compact(one.before)} -> {compact(one.now)}, {ratio(one)}"
            limit = f", within {one.limit}" if one.limit else ""
            yield f"against {number(against)}: {one.side} {one.mode} {one.figure} {at}{limit}"


def surroundings(against: Against) -> Iterator[str]:
    """What is not as it was, and what could not be compared."""
    for difference in against.differences:
        yield f"since {number(against)}: {difference}"
    for name, reason in against.unmeasured.items():
        yield f"against {number(against)}: {name}: {reason}"


def _sentence(against: Against, one: SpeedChange) -> str:
    what = f"{one.side} {one.mode} {one.figure}"
    change = f"{compact(one.now)}, was {compact(one.before)} in {number(against)}: {ratio(one)}"
    end = "SLOWER" if one.failed else "not beyond noise, so it does not fail"
    if one.failed and one.figure.startswith("peak_mem"):
        end = "MORE"
    return f"{what} is {change}; beyond the limit of {one.limit}: {end}"


def ratio(one: SpeedChange) -> str:
    """`x1.08 (95 % 1.03-1.12)`."""
    if one.ratio is None:
        return ""
    low, high = one.ratio.ci95
    interval = f" (95 % {low:.3f}-{high:.3f})" if one.ratio.passes else ""
    return f"x{one.ratio.median:.3f}{interval}"


def _limit(one: SpeedChange) -> str:
    if one.limit is None:
        return ""
    if not one.beyond_limit:
        return f"{one.limit}, within"
    return f"{one.limit}, SLOWER" if one.failed else f"{one.limit}, beyond, within noise"
