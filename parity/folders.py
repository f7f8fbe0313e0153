"""Run folders: numbered, never overwritten, found again by number.

`0007_tiny_3f2a9c01be-dirty_20261129T191500Z` holds `run.json`, `passes/`, `launches/` and `result.json`.
"""

import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spec.checkout import code_version
from spec.errors import RuleError, few

_NUMBERED = re.compile(r"(\d{4,})_")
_PASS = re.compile(r"(\d+)_")
_ANOTHER = "name another run by its folder, its number or last, or make it again"

RUN = "run.json"
RESULT = "result.json"
"""What a run leaves that came to its end."""
PASSES = "passes/*"
"""What a run leaves in which a side was started on the problem itself; one that was killed too."""


def create(out: Path, name: str) -> Path:
    """Makes the next numbered run folder under `out`.

    Raises:
      RuleError: `out` cannot be written.
    """
    commit, dirty = code_version()
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    label = f"{name}_{commit}{'-dirty' if dirty else ''}_{stamp}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        with _locked(out):
            number = max(_numbered(out), default=0) + 1
            folder = out / f"{number:04d}_{label}"
            folder.mkdir()
    except OSError as error:
        raise RuleError(
            "The folder of runs can be written.", f"{out}: {error.strerror}", "give --out a writable folder"
        ) from None
    return folder.absolute()


def create_part(parent: Path) -> Path:
    """The next folder 0001, 0002 ... inside a run's own folder."""
    taken = [int(path.name) for path in parent.glob("[0-9]*") if path.name.isdigit()]
    folder = parent / f"{max(taken, default=0) + 1:04d}"
    folder.mkdir(parents=True)
    return folder.absolute()


def last_number(names: Iterable[str]) -> int:
    """The highest number that a name begins with, as `012_torch_time` does with 12; 0 where none does."""
    return max((int(match.group(1)) for name in names if (match := _PASS.match(name))), default=0)


def find(text: str, out: Path, holds: str = RESULT) -> Path:
    """The run folder that a path, a number or `last` means.

    Args:
      holds: a pattern of what the last run has in its folder. One that ended before it had any is passed
        over, and so is one that cannot be read.

    Raises:
      RuleError: there is none.
    """
    path = Path(text)
    if path.is_dir():
        return path.absolute()
    runs = _numbered(out)
    if text == "last" and runs:
        return _last(out, holds)
    if text.isdigit() and int(text) in runs:
        return runs[int(text)]
    known = ", ".join(f"{number:04d}" for number in sorted(runs)[-5:]) or "none"
    within = path.is_file() and (path.parent / RUN).is_file()
    raise RuleError(
        "A run is a folder, a number or last.",
        f"{text!r}; newest in {out}: {known}",
        f"name the folder, {path.parent}" if within else "name another, or --out",
    )


def _last(out: Path, holds: str) -> Path:
    passed: list[str] = []
    for folder in newest_first(out):
        if any(folder.glob(holds)):
            if passed:
                print(f"last is {folder.name}: no {holds} in {few(passed, between=', ')}", file=sys.stderr)
            return folder
        passed.append(folder.name)
    raise RuleError(
        "last is the newest run that came so far.",
        f"no {holds} in any run of {out}",
        "make a run, or name one in another folder",
    )


def newest_first(out: Path) -> Iterator[Path]:
    """The numbered run folders, the highest number first; one whose `run.json` is damaged is named and passed
    over, so that it does not hide the runs before it."""
    for _, folder in sorted(_numbered(out).items(), reverse=True):
        try:
            if (folder / RUN).exists():
                read_run(folder)
        except RuleError as error:
            pass_over(folder, error)
        else:
            yield folder


def pass_over(folder: Path, error: RuleError) -> None:
    """Says on standard error that a run is not taken for the last one, and why."""
    print(f"passed over {folder.name}: {error.numbers}", file=sys.stderr)


def _numbered(out: Path) -> dict[int, Path]:
    """The run folders by number."""
    folders = sorted(path.absolute() for path in out.glob("*_*") if path.is_dir())
    return {int(match.group(1)): path for path in folders if (match := _NUMBERED.match(path.name))}


@contextmanager
def _locked(out: Path) -> Generator[None]:
    """Two referees that start at once must not take the same number."""
    handle = os.open(out / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def read_run(folder: Path) -> dict[str, Any]:
    """What a run was: its `run.json`.

    Raises:
      RuleError: as `read_json`.
    """
    return read_json(folder / RUN, "spec", "backends", "edits", "environment")


def read_json(path: Path, *fields: str) -> Any:
    """A JSON file of a run folder.

    Args:
      fields: what the caller needs of an object.

    Raises:
      RuleError: it is missing or damaged, or has no such fields.
    """
    written = read_bytes(path)
    try:
        content = json.loads(written)
    except ValueError as error:
        raise not_whole(path, str(error)) from None
    if missing := [name for name in fields if not isinstance(content, dict) or name not in content]:
        raise not_whole(path, f"no {', '.join(missing)}")
    return content


def not_whole(path: Path, found: str) -> RuleError:
    """A file of a run folder that cannot be used, and why."""
    return RuleError("A run folder's JSON files are whole.", f"{path}: {found}", _ANOTHER)


def read_bytes(path: Path) -> bytes:
    """The bytes of a file of a run folder.

    Raises:
      RuleError: it is missing or cannot be read.
    """
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise RuleError(
            f"The folder of a run that ended holds {path.name}.", f"{path.parent}: no {path.name}", _ANOTHER
        ) from None
    except OSError as error:
        raise RuleError("A run folder's files can be read.", f"{path}: {error.strerror}", _ANOTHER) from None
