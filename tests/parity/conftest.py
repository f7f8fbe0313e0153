"""The real command line, with real sides or with stand-ins for them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

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


@pytest.fixture
def parity(tmp_path: Path) -> Parity:
    """Run `parity WORDS` in an empty folder and check its exit code; keyword arguments are `environ`'s."""

    def run(words: str, code: int = 0, **options: str | bool) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command(words),
            cwd=tmp_path,
            env=environ(**options),  # type: ignore[arg-type]
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr or code == 6, done.stderr
        return done

    return run


@pytest.fixture
def fake_parity(parity: Parity) -> Parity:
    """`parity` with stand-ins for the sides."""

    def run(words: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        return parity(words, code, fakes=True, **variables)

    return run
