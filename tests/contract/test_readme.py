"""Every command that README.md shows works.

Blocks fenced as `sh` run verbatim, one shell a block, top to bottom in one copy of the project, so that a
later block finds the runs of an earlier one. Two things are not run for real: `make`, which would set up a
second environment, becomes `make -n` and still fails for a missing target; a command whose line says
`# needs a GPU` is checked against the frozen list of options and by its own --help. In `console` blocks the
lines that begin with `$ ` are the commands. Where that takes long, the block is marked slow, or runs without
its longest line first and with it among the slow tests.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
NEEDS_GPU = "# needs a GPU"
LONG = (
    "parity bench",
    "parity equivalence",
    "parity explain",
    "parity init-pair",
    "planted_mistake",
    "--judge measured",
    "--edit jax:clip_eps",
    "--handoff",
)
# Compiles the GPT in two processes; the line before it does so too, on both sides.
LONG_LINE = "parity train --backend jax tiny"
# XLA on CPUs spends most of the time in LLVM's optimiser. What it makes is run by the slow blocks.
LITTLE_LLVM = {"XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"}
BLOCK = re.compile(r"^```(sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def read_blocks(markdown: str) -> list[list[str]]:
    """Commands of every `sh` and `console` block, continued lines joined, comments and output left out."""
    blocks = []
    for kind, text in BLOCK.findall(markdown):
        lines = text.replace("\\\n", " ").splitlines()
        if kind == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        blocks.append([line for line in lines if line.strip() and not line.startswith("#")])
    return blocks


BLOCKS = read_blocks(README.read_text("ascii")) if README.exists() else []
ON_CPU = [[line for line in block if NEEDS_GPU not in line] for block in BLOCKS]
ON_GPU = [line for block in BLOCKS for line in block if NEEDS_GPU in line]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as a reader has it after set-up: its files, and .venv."""
    folder = tmp_path_factory.mktemp("readme") / ROOT.name
    shutil.copytree(
        ROOT, folder, ignore=shutil.ignore_patterns(".venv", ".git", "runs", "__pycache__", ".*_cache")
    )
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """PATH with the environment's programs first, and `make` standing for `make -n`."""
    shim = tmp_path_factory.mktemp("bin") / "make"
    shim.write_text(f'#!/bin/sh\nexec {shutil.which("make")} -n "$@"\n')
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join([str(shim.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path}


def _marked(block: list[str]) -> list[Any]:
    """The block, marked slow where it takes 20 to 50 s: `make test-slow` runs it whole."""
    slow = pytest.param(block, marks=pytest.mark.slow)
    if any(word in line for line in block for word in LONG):
        return [slow]
    short = [line for line in block if not line.startswith(LONG_LINE)]
    return [short, slow] if short != block else [block]


def _run(script: str, folder: Path, environment: dict[str, str]) -> None:
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{script}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}"


def test_readme_shows_commands() -> None:
    assert README.exists(), "the project has a README.md"
    shown = [line for block in BLOCKS for line in block]
    assert any("make parity" in line for line in shown) and any("make test" in line for line in shown)
    assert any("parity run" in line for block in ON_CPU for line in block)
    assert sum(line.startswith(LONG_LINE) for line in shown) == 1


@pytest.mark.parametrize(
    "block", [case for block in ON_CPU if block for case in _marked(block)], ids=lambda block: block[0]
)
def test_block_runs(
    request: pytest.FixtureRequest, block: list[str], copy: Path, environment: dict[str, str]
) -> None:
    is_slow = request.node.get_closest_marker("slow") is not None
    _run("\n".join(block), copy, environment if is_slow else environment | LITTLE_LLVM)


@pytest.mark.parametrize("line", ON_GPU)
def test_gpu_command_is_known(line: str, copy: Path, environment: dict[str, str]) -> None:
    frozen = (ROOT / "tests" / "contract" / "command_line.txt").read_text("ascii").split("\n")
    words = shlex.split(line, comments=True)
    if words[0] == "parity":
        unknown = [
            w for w in words[2:] if w.startswith("--") and f"{words[1]} {w.partition('=')[0]}" not in frozen
        ]
        assert not unknown, f"{line}: no such options {unknown}"
        words = words[:2]
    _run(shlex.join([*words, "--help"]), copy, environment)


# The rest proves that the reader of blocks and the runner can fail.


def test_blocks_are_read() -> None:
    text = "```sh\n# why\na \\\n  b\n\nc  # needs a GPU\n```\n\n```python\nno\n```\n"
    text += "```console\n$ d\noutput\n```\n"
    assert read_blocks(text) == [["a    b", "c  # needs a GPU"], ["d"]]


@pytest.mark.parametrize(
    "script", ["make no-such-target", "parity no-such-command", "false\ntrue", "false | cat"]
)
def test_a_wrong_command_fails(script: str, copy: Path, environment: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match="exit code"):
        _run(script, copy, environment)
