"""What is wrong with a command line that was refused: the rule, what was typed, and how to mend it.

Must not: allow a word. It speaks once a parser has said no, so what it lets pass is not thereby right.
"""

import contextlib
import io
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from spec.errors import ExitCode, RuleError, few, nearest

Parsed = TypeVar("Parsed")

_VALUES: dict[type, tuple[str, str]] = {int: ("a whole number", "20"), float: ("a number", "600.5")}
"""What is said of the types that not every word is a value of, and an example."""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """What one command takes."""

    words: str
    """What calls it, such as `parity run`."""
    options: Mapping[str, type]
    """The type of each option's value, by its name with dashes; bool for a switch, which has none."""
    positionals: Sequence[str]
    """Names of the words without dashes, in order."""
    required: Sequence[str]
    """Options and positionals that have no default."""


def in_short(parse: Callable[[], Parsed], complain: Callable[[], RuleError | None]) -> Parsed:
    """What a parser makes of a command line; SystemExit(0) once it has shown its help.

    Args:
      parse: ends as argparse does where it refuses: words on standard error, SystemExit(2).
      complain: what is wrong, where it can be seen; where it cannot, the parser's own words are shown.

    Raises:
      RuleError: the command line was refused.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parse()
    except SystemExit as ended:
        if ended.code == ExitCode.USAGE and (wrong := complain()) is not None:
            raise wrong from None
        print(said.getvalue(), end="", file=sys.stderr)
        raise


def accepted(words: str, command: type, positionals: Sequence[str]) -> Accepted:
    """What a dataclass of options takes.

    Args:
      positionals: fields that are given without their names.
    """
    hints, options, required = get_type_hints(command), dict[str, type](), list[str]()
    for one in fields(command):
        name = one.name.upper() if one.name in positionals else _dashed(one.name)
        if one.default is MISSING and one.default_factory is MISSING:
            required.append(name)
        if one.name not in positionals:
            options[name] = _type(hints[one.name])
            if options[name] is bool:
                options[_dashed(f"no_{one.name}")] = bool
    names = [name.upper() for name in positionals]
    return Accepted(words=words, options=options, positionals=names, required=required)


def complaint(arguments: Sequence[str], known: Accepted) -> RuleError | None:
    """What is wrong with the arguments behind the words of a command; None where nothing is seen."""
    rest, given, typed = list(arguments), list[str](), set[str]()
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            given.append(word)
            continue
        name, equals, value = word.partition("=")
        name = _dashed(name.lstrip("-"))
        typed.add(name)
        kind = known.options.get(name)
        if kind is None or (kind is bool and equals):
            return _unknown(word, name, known)
        if kind is bool:
            continue
        if not equals and (not rest or rest[0].startswith("--")):
            return _wrong_value(name, kind, f"nothing behind {name}", known)
        value = value if equals else rest.pop(0)
        if not _is_readable(value, kind):
            return _wrong_value(name, kind, repr(value), known)
    if len(given) > len(known.positionals):
        return _too_many(given, known)
    typed |= set(known.positionals[: len(given)])
    missing = [name for name in known.required if name not in typed]
    return _missing(missing, given, known) if missing else None


def no_command(typed: Sequence[str], words: str, commands: Sequence[str]) -> RuleError:
    """What was typed behind `words` is none of the commands that follow there."""
    found = repr(typed[0]) if typed else "nothing"
    guess = nearest(typed[0], commands) if typed and not typed[0].startswith("-") else ""
    return RuleError(f"A command follows {words}.", found, f"{guess}commands: {', '.join(commands)}")


def _is_readable(value: str, kind: type) -> bool:
    try:
        kind(value)
    except ValueError:
        return False
    return True


def _wrong_value(name: str, kind: type, found: str, known: Accepted) -> RuleError:
    what, example = _VALUES.get(kind, ("a value", ""))
    such_as = f"such as {name} {example}; " if example else ""
    return RuleError(f"{name} takes {what}.", found, such_as + _see(known))


def _unknown(word: str, name: str, known: Accepted) -> RuleError:
    if name in known.options:
        return RuleError(f"{name} is a switch and takes no value.", word, f"{name}, or leave it out")
    return RuleError(
        f"{known.words} takes the options that its help lists.",
        word,
        nearest(name, known.options) + _see(known),
    )


def _too_many(given: Sequence[str], known: Accepted) -> RuleError:
    takes = f"{' and '.join(known.positionals)} alone" if known.positionals else "nothing"
    found = few([repr(word) for word in given], between=", ")
    return RuleError(f"Of words without dashes {known.words} takes {takes}.", found, _see(known))


def _missing(missing: Sequence[str], given: Sequence[str], known: Accepted) -> RuleError:
    found = f"{few([repr(word) for word in given], between=', ')}, but no " if given else "no "
    return RuleError(
        f"{known.words} needs {' and '.join(known.required)}.",
        found + " and no ".join(missing),
        _see(known),
    )


def _see(known: Accepted) -> str:
    return f"{known.words} --help tells what each option means"


def _dashed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _type(hint: Any) -> type:
    """The type of a value, without the None that stands for the default; str where any word will do."""
    union = get_origin(hint) in (Union, types.UnionType)
    one = next(part for part in get_args(hint) if part is not types.NoneType) if union else hint
    return one if one in (bool, *_VALUES) else str
