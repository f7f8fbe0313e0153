"""The page about pairs is true: its commands run, and its Python runs, in the order in which they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parity.conftest import ROOT, environ

PAGE = (ROOT / "docs" / "pairs.md").read_text("ascii")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(argv: list[str], folder: Path) -> None:
    env = environ(XLA_FLAGS="--xla_backend_optimization_level=0")
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_every_block_of_the_page_runs(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE)
    assert [kind for kind, _ in blocks].count("python") == 5
    for kind, text in blocks:
        if kind == "sh":
            run(["bash", "-euo", "pipefail", "-c", text], tmp_path)
        elif "def test_" in text:
            (tmp_path / "test_mine.py").write_text(text)
            words = ["-p", "parity.pytest_plugin", "-p", "no:cacheprovider", "test_mine.py"]
            run([sys.executable, "-m", "pytest", *words], tmp_path)
        else:
            run([sys.executable, "-c", text], tmp_path)
