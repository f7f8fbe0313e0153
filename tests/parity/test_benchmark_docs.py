"""The page about measuring is true: its commands run, in the order in which they stand."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from parity import command_line
from tests.contract.test_readme import NEEDS_GPU, read_blocks
from tests.parity.conftest import ROOT, environ

BLOCKS = read_blocks((ROOT / "docs" / "benchmarks.md").read_text("ascii"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_block_of_the_page_runs(tmp_path: Path) -> None:
    """Five measurements of both sides: two to three minutes."""
    env = environ()
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    for block in BLOCKS:
        script = "\n".join(line for line in block if NEEDS_GPU not in line)
        argv = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"


def test_every_option_of_the_page_is_one() -> None:
    lines = [shlex.split(line, comments=True) for block in BLOCKS for line in block]
    assert len(lines) == 7
    for words in lines:
        used = {word for word in words if word.startswith("--")}
        assert {f"{words[1]} {option}" for option in used} <= set(command_line.exposed()), words
