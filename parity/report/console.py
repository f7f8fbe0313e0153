"""What people read on standard output: the verdict line, one table, then where the files are.

Must not: decide or measure anything; all of it stands in the `Result`.
"""

import io

from rich.console import Console

from parity.report import against_lines, fitting, rows
from parity.report.result import Result

_STYLES = {"SAME": "bold green", "DIFFERENT": "bold red", "FAILED": "bold red"}
_PLAIN_WIDTH = 200
"""Width where neither a terminal nor COLUMNS gives one: nobody can widen a window there."""


def show(result: Result) -> None:
    """Prints a result, its table in the width of the terminal."""
    width = fitting.terminal_width()
    _print(result, Console(highlight=False, width=width or _PLAIN_WIDTH, markup=False), width)


def text(result: Result) -> str:
    """What `show` prints where nothing gives a width."""
    lines = io.StringIO()
    _print(result, Console(file=lines, highlight=False, width=_PLAIN_WIDTH, markup=False))
    return lines.getvalue()


def _print(result: Result, console: Console, width: int | None = None) -> None:
    console.print(verdict_line(result), style=_STYLES.get(result.verdict or "", "bold"), soft_wrap=True)
    heads, lines = rows.table(result)
    for table in fitting.tables(heads, lines, width) if lines else ():
        console.print(table)
    for line in rows.notes(result):
        console.print(line, soft_wrap=True, markup=False)
    for line in rows.paths(result):
        console.print(line, soft_wrap=True, markup=False)


def verdict_line(result: Result) -> str:
    """`SAME  loss max rel 5.1e-07 (tol 2e-06)   speed: torch 1.32x slower than jax (95 % 1.25-1.40)`."""
    words = [rows.headline(result), rows.speed_phrase(result), against_lines.phrase(result.against)]
    return "   ".join(word for word in words if word)
