"""A table on a terminal that is narrower than the table: cells fold between words, never within a figure, and
columns that find no room follow below, beside the first column again.

Must not: know what stands in the cells.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

_BETWEEN = 3
"""Characters between two columns, and about as many at both edges together."""


@dataclass(frozen=True)
class Block:
    """Some columns of a table, by their number, and how wide each is drawn."""

    columns: list[int]
    widths: list[int]


def terminal_width() -> int | None:
    """The columns that COLUMNS or else the terminal behind standard output gives; None for neither."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    # Python's own answer for a terminal that does not tell is 80, and for a file too.
    return os.get_terminal_size(sys.stdout.fileno()).columns or None if sys.stdout.isatty() else None


def blocks(heads: Sequence[str], lines: Sequence[Sequence[str]], width: int) -> list[Block]:
    """The columns in as few blocks as fit into a width, in their order; each begins with the first column."""
    columns = [[head, *(line[number] for line in lines)] for number, head in enumerate(heads)]
    full = [max(map(len, column)) for column in columns]
    # A first column of long names leaves room for others.
    least = [max((len(word) for cell in column for word in cell.split()), default=1) for column in columns]
    least[0] = min(least[0], max(1, width // 2 - _BETWEEN))
    found: list[list[int]] = []
    for number in range(1, len(columns)):
        taken = [*found[-1], number] if found else []
        if taken and sum(least[one] + _BETWEEN for one in taken) <= width:
            found[-1] = taken
        else:
            found.append([0, number])
    return [Block(one, _widths(one, least, full, width)) for one in found or [[0]]]


def _widths(columns: Sequence[int], least: Sequence[int], full: Sequence[int], width: int) -> list[int]:
    """Each column gets its longest word; what is left goes first to those that lack the least."""
    last = width - _BETWEEN * len(columns) - sum(least[one] for one in columns[:-1])
    given = {one: least[one] for one in columns[:-1]} | {columns[-1]: max(1, min(last, least[columns[-1]]))}
    left = width - sum(one + _BETWEEN for one in given.values())
    for one in sorted(columns, key=lambda one: full[one] - given[one]):
        more = max(0, min(left, full[one] - given[one]))
        given[one], left = given[one] + more, left - more
    return list(given.values())


def tables(heads: Sequence[str], lines: Sequence[Sequence[str]], width: int | None) -> list[Table]:
    """What is to be printed: a table a block, or one whose cells the printer cuts where no width is given."""
    fitted = [Block([*range(len(heads))], [])] if width is None else blocks(heads, lines, width)
    return [_table(block, heads, lines) for block in fitted]


def _table(block: Block, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, number in enumerate(block.columns):
        justify = "left" if number in (0, len(heads) - 1) else "right"
        if block.widths:
            table.add_column(heads[number], justify=justify, width=block.widths[place], overflow="fold")
        else:
            table.add_column(heads[number], justify=justify)
    for line in lines:
        table.add_row(*(line[number] for number in block.columns))
    return table
