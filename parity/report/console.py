"""What people read on standard output: the verdict line, one table, then where the files are.

Must not: decide or measure anything; all of it stands in the `Result`.
"""

import io
import sys

from rich import box
from rich.console import Console
from rich.table import Table

from parity.report import against_lines, rows
from parity.report.result import Result

_STYLES = {"SAME": "bold green", "DIFFERENT": "bold red", "FAILED": "bold red"}
_PLAIN_WIDTH = 200
"""Width off a terminal, where nobody can widen a window."""


def show(result: Result) -> None:
    """Prints a result."""
    _print(result, _console())


def text(result: Result) -> str:
    """What `show` prints off a terminal."""
    lines = io.StringIO()
    _print(result, Console(file=lines, highlight=False, width=_PLAIN_WIDTH, markup=False))
    return lines.getvalue()


def _print(result: Result, console: Console) -> None:
    console.print(verdict_line(result), style=_STYLES.get(result.verdict or "", "bold"), soft_wrap=True)
    table = _table(result)
    if table.row_count:
        console.print(table)
    for line in rows.notes(result):
        console.print(line, soft_wrap=True, markup=False)
    for line in rows.paths(result):
        console.print(line, soft_wrap=True, markup=False)


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH, markup=False)


def _table(result: Result) -> Table:
    heads, lines = rows.table(result)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number in (0, len(heads) - 1) else "right")
    for line in lines:
        table.add_row(*line)
    return table


def verdict_line(result: Result) -> str:
    """`SAME  loss max rel 5.1e-07 (tol 2e-06)   speed: torch 1.32x slower than jax (95 % 1.25-1.40)`."""
    words = [rows.headline(result), rows.speed_phrase(result), against_lines.phrase(result.against)]
    return "   ".join(word for word in words if word)
