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
    what = dict.fromkeys(_what(against, one, one.side) for one in failed)
    return f"SLOWER than {number(against)}: {', '.join(what)}"


def number(against: Against) -> str:
    """The number of the saved run, or its folder's name."""
    return Path(against.folder).name.partition("_")[0]


def lines(against: Against) -> Iterator[list[str]]:
    """For the table of `parity compare`: figure, before, now, ratio, limit."""
    for one in against.changes:
        yield [
            _what(against, one),
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
            yield f"against {number(against)}: {_what(against, one)} {at}{limit}"


def surroundings(against: Against) -> Iterator[str]:
    """What is not as it was, and what could not be compared."""
    for difference in against.differences:
        yield f"since {number(against)}: {difference}"
    for name, reason in against.unmeasured.items():
        yield f"against {number(against)}: {name}: {reason}"


def _what(against: Against, one: SpeedChange, who: str = "") -> str:
    """`torch eager step_ms.median`, with batch and call after the mode where there are several.

    Args:
      who: instead of side and mode.
    """
    words = [who or f"{one.side} {one.mode}"]
    if len({other.batch for other in against.changes}) > 1:
        words.append(f"batch {one.batch}")
    calls = [call for call in (one.before_call, one.now_call) if call is not None]
    if len(calls) == 2 and calls[0] != calls[1]:
        words.append(f"call {calls[0]} -> {calls[1]}")
    elif len(calls) == 2:
        words.append(f"call {calls[0]}")
    elif calls:
        where = "now" if one.before_call is None else f"in {number(against)}"
        words.append(f"call {calls[0]} {where}")
    return f"{words[0]} {one.figure}" if len(words) == 1 else ", ".join([*words, one.figure])


def _sentence(against: Against, one: SpeedChange) -> str:
    what = _what(against, one)
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
