"""From the words of a command line to one of the dataclasses of `options`, through tyro.

What tyro refuses is told in this project's words: the rule, what was typed, the mend. Must not: act.
"""

import dataclasses
from collections.abc import Sequence
from typing import get_args, get_type_hints

import tyro
from tyro.conf import Positional

from parity.options import (
    COMMANDS,
    Bench,
    Command,
    Compare,
    Data,
    Doctor,
    Equivalence,
    Explain,
    InitPair,
    Power,
    Report,
    Run,
    Train,
)
from spec import mistyped
from spec.errors import RuleError


def parse(
    arguments: Sequence[str],
) -> Run | Train | Bench | Compare | Explain | Power | Equivalence | Report | Data | InitPair | Doctor:
    """The command that the arguments ask for; SystemExit(0) once help has been shown.

    Raises:
      RuleError: no command fits them.
    """
    return mistyped.in_short(
        lambda: tyro.cli(
            Command,  # type: ignore[arg-type]
            prog="parity",
            description="One training step, built twice: is it the same, and which is faster?",
            args=arguments,
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.HelptextFromCommentsOff),
        ),
        lambda: _complaint(arguments),
    )


def exposed() -> list[str]:
    """Every subcommand and option: `run PRESET`, `run --backend`, `run --no-time`, `doctor --out` ..."""
    known = {words: _accepted(words) for words in COMMANDS}
    return [f"{words} {name}" for words, one in known.items() for name in (*one.positionals, *one.options)]


def _complaint(arguments: Sequence[str]) -> RuleError | None:
    """What is wrong with them, where it can be seen."""
    commands = [words.split() for words in COMMANDS]
    typed, rest = list[str](), list(arguments)
    while typed not in commands:
        follow = list(dict.fromkeys(one[len(typed)] for one in commands if one[: len(typed)] == typed))
        if not rest or rest[0] not in follow:
            return mistyped.no_command(rest, " ".join(["parity", *typed]), follow)
        typed.append(rest.pop(0))
    return mistyped.complaint(rest, _accepted(" ".join(typed)))


def _accepted(words: str) -> mistyped.Accepted:
    command, marker = COMMANDS[words], get_args(Positional[str])[1]
    hints = get_type_hints(command, include_extras=True)
    positionals = [
        one.name
        for one in dataclasses.fields(command)
        if marker in getattr(hints[one.name], "__metadata__", ())
    ]
    return mistyped.accepted(f"parity {words}", command, positionals)
