"""The real command line, with real sides or with stand-ins for them."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from parity.report import schema

ROOT = Path(__file__).resolve().parent.parent.parent
FAKES = ROOT / "tests" / "parity" / "fakes"

Parity = Callable[..., subprocess.CompletedProcess[str]]


def command(words: str) -> list[str]:
    """The command line of `parity WORDS`."""
    return [sys.executable, "-m", "parity", *words.split()]


def environ(*, fakes: bool = False, **variables: str) -> dict[str, str]:
    """The environment of a referee; with `fakes` it finds the stand-ins before the sides."""
    own = [str(FAKES), str(ROOT)] if fakes else [str(ROOT)]
    # Where the packages themselves are found by it, the referee needs it too.
    path = [*own, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **variables}


@functools.cache
def _validator() -> Draft202012Validator:
    # Made once: `jsonschema.validate` checks the schema itself each time, for longer than the content.
    made = schema.result_schema()
    Draft202012Validator.check_schema(made)
    return Draft202012Validator(made)


def check_schema(content: Any) -> None:
    """Fails where the content of a `result.json` is not as its schema says."""
    _validator().validate(content)


def run_in(
    folder: Path, words: str, code: int = 0, **options: str | bool
) -> subprocess.CompletedProcess[str]:
    """Run `parity WORDS` in a folder and check its exit code; keyword arguments are `environ`'s."""
    done = subprocess.run(
        command(words),
        cwd=folder,
        env=environ(**options),  # type: ignore[arg-type]
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr or code == 6, done.stderr
    return done


@pytest.fixture
def parity(tmp_path: Path) -> Parity:
    """`run_in` an empty folder."""
    return functools.partial(run_in, tmp_path)


@pytest.fixture
def fake_parity(tmp_path: Path) -> Parity:
    """`parity` with stand-ins for the sides."""
    return functools.partial(run_in, tmp_path, fakes=True)
