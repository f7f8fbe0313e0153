"""Asks a process of its own what a user's `pair.py` holds, and lets it write the batches.

Must not: import the file; what it does at import is no matter of the referee's.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from parity.commands import side_environ
from parity.folders import read_json
from spec import codec
from spec.errors import RuleError
from spec.pairs.materialise import Outline
from spec.pairs.pair import FILE

_TIMEOUT_S = 600.0


def is_pair(text: str) -> bool:
    """Whether a word of the command line means a folder, not a preset."""
    return "/" in text or Path(text).is_dir()


def outline(text: str) -> Outline:
    """What the pair in a folder holds.

    Raises:
      RuleError: there is none, or something in it must be mended.
    """
    folder = Path(text).expanduser().absolute()
    if not (folder / FILE).is_file():
        raise RuleError(
            "A pair is a folder with a pair.py.",
            f"{folder}: no such {'file in it' if folder.is_dir() else 'folder'}",
            "parity init-pair DIR writes one to begin with",
        )
    with tempfile.TemporaryDirectory(prefix="parity-") as out:
        _ask(["outline", str(folder), out], Path(out))
        return codec.from_dict(Outline, read_json(Path(out) / "outline.json"))


def write_batches(folder: Path, out: Path, steps: int) -> None:
    """Writes the batches of all steps, once, for all passes of both sides.

    Raises:
      RuleError: a batch differs in shape, or changes when it is asked for again.
    """
    _ask(["write", str(folder), str(out), str(steps)], out)


def _ask(words: list[str], out: Path) -> None:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "spec.pairs", *words],
            env=side_environ("cpu", 1),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuleError(
            "pair.py is read and its batches are made in time.",
            f"{words[1]}: nothing after {_TIMEOUT_S:.0f} s",
            "make batches smaller, or fewer steps",
        ) from None
    if (out / "error.json").exists():
        error = read_json(out / "error.json")
        raise RuleError(error["rule"], error["numbers"], error["mend"])
    if done.returncode:
        words = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise RuleError("pair.py is read without ending its process.", words[0][:300])
