"""How the page says things: numbers, nulls and the verdict in a sentence.

Must not: read files, or make markup.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from parity.report import bench_table, rows
from parity.report.result import Result, Spread
from parity.report.traced import Distribution, Gaps
from spec.measure import FIGURES

EXIT_CODES = {
    0: "nothing that was asked for failed",
    1: "the sides differ",
    2: "the command line, the configuration or the data must be mended",
    3: "slower than was allowed",
    4: "the numbers do not decide",
    5: "the sides were not given the same problem",
    6: "a side crashed, hung or was ended",
}
"""What a script may conclude from each exit code."""

MARKS = {"SAME": "=", "DIFFERENT": "\u2260", "INCONCLUSIVE": "?", "NOT_COMPARABLE": "\u00d7", "FAILED": "!"}
"""A sign beside each verdict, for who does not see its colour."""


_OUTCOMES = {
    "EQUIVALENT": "Over many seeds the sides end alike, within the margin stated beforehand",
    "DIFFERENT": "Over many seeds the sides end apart, by more than the margin stated beforehand",
    "INCONCLUSIVE": "These seeds do not decide whether the sides end alike",
}


def verdict_sentence(result: Result) -> str:
    """What the run found, in one sentence."""
    if result.equivalence is not None and result.equivalence.outcome is not None:
        return f"{_OUTCOMES[result.equivalence.outcome]}: {rows.headline(result).partition('  ')[2]}."
    reason = result.reasons[0].rstrip(".") if result.reasons else "no reason was recorded"
    match result.verdict:
        case "SAME":
            return "The sides did the same: everything compared lies within its tolerance."
        case "DIFFERENT":
            return f"The sides differ; {reason}."
        case "INCONCLUSIVE":
            return f"The numbers do not decide: {reason}."
        case "NOT_COMPARABLE":
            return f"Nothing was judged, because the sides were not given the same: {reason}."
        case "FAILED":
            return f"The run did not finish: {reason}."
    if result.command == "bench":
        return "Step times were measured; parity run judges numbers."
    return f"Nothing was judged: {result.unmeasured.get('numerics', 'one side ran')}."


def other_reasons(result: Result) -> list[str]:
    """What else is to be said, in the words of the console, but for what the page says in its own place."""
    elsewhere = {*bench_table.left_out(result.bench), *bench_table.warnings(result)}
    if result.sweep is not None:
        elsewhere.update(bench_table.crossings(result.sweep), bench_table.model(result.sweep))
    found = [note.removeprefix("note: ") for note in rows.notes(result) if note not in elsewhere]
    if result.warnings:
        found.append("warnings of what makes these figures worth less stand below their table")
    return found


def command(argv: Sequence[object]) -> str:
    """A command line as one types it."""
    return shlex.join(["parity", *map(str, argv)])


def number(value: float | int | None) -> str:
    """A difference; null means that it is not finite on one side only."""
    if value is None:
        return "not finite on one side"
    return f"{value:.1e}" if value else "0"


class Told(NamedTuple):
    """A figure in words."""

    value: str
    """The number that is compared; empty where the figure is nothing but its parts."""
    more: tuple[str, ...] = ()
    """Its spread, or its parts, in pieces between which a line may break."""


def figure(name: str, value: float | int | Spread | Distribution | Mapping[str, float]) -> Told:
    """A figure of `spec.measure` with its spread, or in its parts; its unit stands in its name."""
    if isinstance(value, Mapping):
        return Told("" if value else "0", tuple(f"{part} {amount(one)}" for part, one in value.items()))
    if isinstance(value, Spread):
        return Told(amount(value.median), (f"{amount(value.p10)} to {amount(value.p90)},", f"n {value.n}"))
    if isinstance(value, Distribution):
        more = [f"90 % up to {amount(value.p90)},", f"max {amount(value.max)},", f"n {value.n}"]
        if isinstance(value, Gaps):
            more[-1:] = [f"n {value.n},", f"{amount(value.per_step)} a step"]
        return Told(amount(value.p50), tuple(more))
    if FIGURES[name].unit == "bytes":
        return Told(bytes_(value))
    if name in ("mfu", "device_idle_share"):
        return Told(f"{100 * value:.3g} %")
    return Told(amount(value))


def parts(name: str) -> list[str]:
    """A long name in pieces, between which a line may break."""
    return re.split(r"(?<=[._:+-])(?=\D)|(?<=[a-z])(?=[A-Z])", name)


def amount(value: float) -> str:
    """Four significant digits, and no exponent for large values."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def bytes_(value: float) -> str:
    """Bytes in the unit that leaves few digits."""
    for unit_name in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.4g} {unit_name}"
        value /= 1024
    return f"{value:.4g} GiB"


def reason(reasons: Mapping[str, str], name: str) -> str:
    """Why a value is null."""
    return reasons.get(name) or "no reason was recorded"
