"""Imports files that users wrote, and says what is wrong with them in the user's own terms.

An error names the user's file and line and the message, not the frames of this project or of a framework.
Must not: import a framework.
"""

import contextlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import ModuleType

from spec.errors import RuleError


def load(path: Path | str, functions: Sequence[str]) -> ModuleType:
    """The module in a file; its folder can be imported from.

    Raises:
      RuleError: there is no such file, it cannot be imported, or it lacks a function.
    """
    path = Path(path).absolute()
    if not path.is_file():
        raise RuleError(
            "A pair's files exist.", f"{path}: no such file", "pair.py names them as torch and jax"
        )
    name = f"_pair_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    with told(
        path,
        "A pair's file can be imported.",
        f"correct the line; python {path} shows the whole of the error",
    ):
        spec.loader.exec_module(module)
    missing = [function for function in functions if not callable(getattr(module, function, None))]
    if missing:
        held = [key for key, value in vars(module).items() if callable(value) and key[:1] != "_"]
        raise RuleError(
            f"{path.name} has the function{'s' if len(functions) > 1 else ''} {' and '.join(functions)}.",
            f"{path}: no {missing[0]}(); it has {', '.join(held) or 'none'}",
            f"write def {missing[0]}(...)",
        )
    return module


def logged_lr(module: ModuleType) -> Callable[[int], float] | None:
    """What a side's file says that its own loop logs as the rate of a step; None where it says nothing.

    The function raises RuleError where the file's raises, or gives no number.
    """
    function = getattr(module, "logged_lr", None)
    if function is None:
        return None
    path, rule = str(module.__file__), "logged_lr(step) gives a learning rate."

    def logged(step: int) -> float:
        with told(path, rule):
            made = function(step)
            try:
                return float(made)
            except (TypeError, ValueError):
                numbers = f"{path}: logged_lr({step}) returned {type(made).__name__} {str(made)[:60]!r}"
                raise RuleError(rule, numbers, "return a number, such as a float") from None

    return logged


def try_logged_lr(logged: Callable[[int], float] | None, steps: int) -> None:
    """Asks what `logged_lr` found, where it found something, for the first and the last of a run's steps.

    Raises:
      RuleError: the file's function raises, or gives no number.
    """
    if logged is None:
        return
    # It is called again when the run has trained, too late to learn that it gives no number.
    for step in (0, steps - 1):
        logged(step)


@contextlib.contextmanager
def told(path: Path | str, rule: str, mend: str = "") -> Generator[None]:
    """Makes an exception of the user's code a broken rule that names file, line and message.

    Raises:
      RuleError: in place of any other exception.
    """
    try:
        yield
    except RuleError as error:
        if str(Path(path).absolute().parent) in error.numbers:
            raise
        numbers = f"{where(error, Path(path))}: {error.numbers}"
        raise RuleError(error.rule, numbers, error.mend) from None
    except (Exception, SystemExit) as error:
        # Shown for whoever needs the whole of it: a job's log, or nothing where there is none.
        traceback.print_exc()
        raise RuleError(rule, f"{where(error, Path(path))}: {_words(error)}", mend) from None


def raised_in(error: BaseException, path: Path) -> str | None:
    """Line and words of an error that came through the user's folder; None for one that did not."""
    return f"{where(error, path)}: {_words(error)}" if _own_frames(error, path) else None


def where(error: BaseException, path: Path) -> str:
    """`FILE:LINE in FUNCTION`: the innermost frame in the user's folder, or the file alone."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = _own_frames(error, path)
    if not frames:
        return str(path)
    last = frames[-1]
    inside = "" if last.name == "<module>" else f" in {last.name}"
    return f"{last.filename}:{last.lineno}{inside}"


def _own_frames(error: BaseException, path: Path) -> list[traceback.FrameSummary]:
    folder = path.absolute().parent
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if folder in Path(frame.filename).parents]


def _words(error: BaseException) -> str:
    # Python's own words of a syntax error end with file and line, which are told before.
    text = error.msg if isinstance(error, SyntaxError) and error.filename else str(error).strip()
    lines = text.splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines[0] else type(error).__name__
