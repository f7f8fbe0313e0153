"""House rules that a reader would otherwise have to police: size, docstrings, ASCII, no notes to oneself."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("spec", "torch_impl", "jax_impl", "parity", "tests", "benchmarks", "examples")
TEXTS = ("README.md", "spec/README.md", "Makefile", "pyproject.toml", ".ci/run", "requirements/ci-py311.txt")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
NOTE = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X])\b")


def _modules() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _at(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_are_modules_in_every_package() -> None:
    assert {_at(path).split("/")[0] for path in _modules()} >= {"spec", "torch_impl", "jax_impl", "parity"}


def test_every_module_has_a_docstring() -> None:
    bare = [_at(path) for path in _modules() if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]
    assert not bare, f"a module says what it is for, what it must not do, and names its counterpart: {bare}"


def test_ascii_only() -> None:
    bad = [
        f"{_at(path)}:{number}: {line.strip()!r}"
        for path in [*_modules(), *(ROOT / text for text in TEXTS)]
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if not line.isascii()
    ]
    assert not bad, "\n".join(bad)


def test_files_hold_one_concept() -> None:
    sizes = {_at(path): len(path.read_text("utf-8").splitlines()) for path in _modules()}
    long = {name: lines for name, lines in sizes.items() if lines > MAX_FILE_LINES}
    assert not long, f"at most {MAX_FILE_LINES} lines (300 is the aim): {long}"


def test_functions_fit_on_a_screen() -> None:
    long = {}
    for path in _modules():
        for node in _functions(path):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                long[f"{_at(path)}:{node.lineno} {node.name}"] = lines
    assert not long, f"at most {MAX_FUNCTION_LINES} lines (40 is the aim): {long}"


def test_no_notes_to_oneself() -> None:
    notes = [
        f"{_at(path)}:{number}: {line.strip()}"
        for path in _modules()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if NOTE.search(line)
    ]
    assert not notes, "do it, or leave it out:\n" + "\n".join(notes)


def test_public_functions_state_what_they_return() -> None:
    silent = [
        f"{_at(path)}:{node.lineno} {node.name}"
        for path in _modules()
        if _at(path).split("/")[0] != "tests"
        for node in _functions(path)
        if not node.name.startswith("_") and node.returns is None
    ]
    assert not silent, "public functions are annotated:\n" + "\n".join(silent)
