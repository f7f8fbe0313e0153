"""Hands a result over: `result.json` and its page in the run folder, JSON where asked for, the report on
standard output, and on standard error what went wrong."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from parity import folders
from parity.report import causes, console, page
from parity.report.result import LaunchRecord, Result, read_result, to_json, write
from spec import record
from spec.errors import RuleError


def check_target(target: str | None) -> None:
    """Refuses a `--json` file that cannot be written or is there already, before anything is started."""
    if target in (None, "-"):
        return
    folder = Path(target).absolute().parent
    if Path(target).is_dir() or not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise RuleError(
            "The file of --json can be written.", f"--json {target}", "name a file, or - for stdout"
        )
    # A device, such as /dev/null, keeps nothing that could be lost.
    if Path(target).is_file():
        raise RuleError("Nothing is written over.", f"--json {target} exists", "name another file")


def deliver(result: Result, folder: Path | None, target: str | None) -> None:
    """Writes and prints a result.

    Args:
      folder: the run folder; None for a command that makes none.
      target: of `--json`: None, a file, or `-` for JSON alone on standard output.
    """
    if folder is not None:
        _complain(keep(result, folder))
    if target == "-":
        sys.stdout.write(to_json(result))
        return
    if target is not None:
        record.write_text(Path(target), to_json(result))
    console.show(result)


def keep(result: Result, folder: Path) -> str:
    """Writes the result into its run folder and draws its page there.

    Returns:
      Why there is no page; empty where there is one. The verdict stands without it.
    """
    write(result, folder / folders.RESULT)
    try:
        page.write(folder)
    except Exception as error:
        return f"no {page.NAME}: {type(error).__name__}: {error}"
    return ""


def deliver_part(part: Struct, lines: Sequence[str], target: str | None) -> None:
    """Prints what a command found about a saved run, or its JSON.

    Args:
      target: of `--json`, as in `deliver`.
    """
    if target == "-":
        sys.stdout.write(to_json(part))
        return
    if target is not None:
        record.write_text(Path(target), to_json(part))
    sys.stdout.write("\n".join(lines) + "\n")


def add_to_result(folder: Path, **parts: causes.Explanation | causes.Power) -> None:
    """Puts what was found into the run's `result.json`, in place of what an earlier one found there."""
    path = folder / folders.RESULT
    result = read_result(path)
    for name, part in parts.items():
        setattr(result, name, part)
    _complain(keep(result, folder))


def _complain(words: str) -> None:
    if words:
        print(words, file=sys.stderr)


def tell_failures(launches: list[LaunchRecord], folder: Path) -> None:
    """What went wrong in launches, on standard error; the last log lines too where no rule was broken."""
    for item in launches:
        if not item.message:
            continue
        print(item.message, file=sys.stderr)
        # A rule that was broken says it all; the frames around it stand in the log.
        for line in item.log_tail if item.ended != "error" else ():
            print(f"  | {line}", file=sys.stderr)
        print(f"  log: {folder / item.log}", file=sys.stderr)
