"""Tables on a terminal narrower than they are: every line fits, no figure is cut, nothing is left out."""

import io

import pytest
from rich.console import Console

from parity.report import console, fitting
from tests.parity.results import empty_result

HEADS = ["", "step_ms", "launch_us", "exposed_comm_ms", "peak_mem_bytes", "/ own step"]
LINES = [
    [
        "torch graph+inductor",
        "1.1 (1.097-1.104, n 16)",
        "14.83 (9.617-19.89, n 120)",
        "-",
        "534,821,888",
        "own",
    ],
    ["jax jit:concurrent", "1.206 (1.152-1.391, n 16)", "-", "0.1008", "4", "0.664 (0.549-0.897) FASTER"],
]


def drawn(width: int | None) -> list[str]:
    told = io.StringIO()
    for table in fitting.tables(HEADS, LINES, width):
        Console(file=told, width=width or 200, highlight=False, markup=False).print(table)
    return told.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 200])
def test_every_line_fits_and_every_word_of_every_cell_is_there(width: int) -> None:
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    for cell in [*HEADS, *(cell for line in LINES for cell in line)]:
        assert all(word in words for word in cell.split()), cell


def test_every_block_of_columns_begins_with_the_first_one() -> None:
    blocks = fitting.blocks(HEADS, LINES, 60)
    assert len(blocks) > 1
    assert all(block.columns[0] == 0 for block in blocks)
    assert [number for block in blocks for number in block.columns[1:]] == [1, 2, 3, 4, 5]


def test_a_table_that_fits_is_drawn_as_where_there_is_no_width() -> None:
    assert [line.rstrip() for line in drawn(200)] == [line.rstrip() for line in drawn(None)]


def test_a_word_wider_than_the_terminal_is_folded_not_cut() -> None:
    told = io.StringIO()
    for table in fitting.tables(["", "a"], [["x" * 30, "y" * 30]], 20):
        Console(file=told, width=20).print(table)
    assert told.getvalue().count("x") == told.getvalue().count("y") == 30


def test_the_width_is_that_of_columns_and_a_plain_one_without(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console.rows, "table", lambda result: (HEADS, LINES))
    widths = {}
    for columns in ("60", "0", ""):
        monkeypatch.setenv("COLUMNS", columns)
        console.show(empty_result("bench"))
        widths[columns] = max(map(len, capsys.readouterr().out.splitlines()))
    assert widths["60"] <= 60 < widths[""] == widths["0"]
