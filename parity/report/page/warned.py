"""What makes the figures worth less: the warnings of a benchmark, those with one mend together.

Must not: judge; the referee found them.
"""

from dataclasses import dataclass

from parity.report.result import Result


@dataclass(frozen=True)
class Row:
    """One kind of warning."""

    kind: str
    found: list[str]
    """Where and what."""
    mend: str


def rows(result: Result) -> list[Row]:
    """All warnings, in the order of their first."""
    found: dict[tuple[str, str], Row] = {}
    for one in result.warnings:
        row = found.setdefault((one.kind, one.mend), Row(one.kind, [], one.mend))
        row.found.append(f"{one.where}: {one.found}")
    return list(found.values())
