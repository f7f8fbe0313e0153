"""The command line is frozen: every subcommand and option stands in command_line.txt."""

import difflib
import subprocess
from collections.abc import Callable
from pathlib import Path

from parity import cli

FROZEN = Path(__file__).with_name("command_line.txt")


def test_command_line_is_as_frozen() -> None:
    frozen = FROZEN.read_text("ascii").splitlines()
    now = sorted(cli.options())
    changes = "\n".join(difflib.unified_diff(frozen, now, "command_line.txt", "parity", lineterm=""))
    assert now == frozen, (
        "An option appeared, left or was renamed. Scripts depend on them: additions only, and each one on "
        f"purpose. If so, edit tests/contract/command_line.txt.\n{changes}"
    )


def test_help_shows_every_frozen_option(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """`options()` is our own list; --help is what a user meets. They must agree."""
    frozen = [line.rsplit(maxsplit=1) for line in FROZEN.read_text("ascii").splitlines()]
    for command in sorted({words for words, _ in frozen}):
        text = run_python("-m", "parity.cli", *command.split(), "--help", env={"COLUMNS": "200"}).stdout
        missing = [option for words, option in frozen if words == command and option not in text]
        assert not missing, f"parity {command} --help does not show {missing}"
