"""One run of the kitchen pair and its JAX steps, made once for all searches."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parity.conftest import command, environ
from tests.parity.explained.planting import Planting

PAIRS = Path(__file__).resolve().parent


def run(folder: Path, words: str, code: int) -> subprocess.CompletedProcess[str]:
    """`parity WORDS` in a folder; its exit code must be `code`."""
    done = subprocess.run(
        command(words), cwd=folder, env=environ(), capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="session")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the kitchen pair, whose sides are the same."""
    folder = tmp_path_factory.mktemp("kitchen")
    run(folder, f"run {PAIRS / 'kitchen'} --no-time", code=0)
    return next((folder / "runs").glob("0001_*"))


@pytest.fixture(scope="session")
def planting(kitchen: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planting]:
    """Searches on it, the torch side edited anew for each."""
    made = Planting(kitchen, tmp_path_factory.mktemp("planting"))
    yield made
    made.close()
