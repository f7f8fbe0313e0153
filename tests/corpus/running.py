"""Runs a case under the real command line and compares what it found with what the case expects.

Must not: read anything of the tool but what it prints, its exit code and `result.json`.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.corpus.case import Case, Variant

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 900
_EXIT_CODES = {"SAME": 0, "DIFFERENT": 1, "REFUSED": 2, "INCONCLUSIVE": 4, "NOT_COMPARABLE": 5, "FAILED": 6}


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the tool said of one variant."""

    case: str
    variant: str
    expected: dict[str, Any]
    """The variant as it was then."""
    commands: list[str]
    exit_codes: list[int]
    verdict: str
    class_: str
    first: str
    """`phase/tensor`; empty where nothing differs."""
    outcome: str
    edits: list[str]
    caught: list[str]
    missed: list[str]
    reasons: list[str]
    printed: str
    wrong: list[str]
    """What is not as the case expects; empty where all of it is."""
    seconds: float


def run(case: Case, variant: Variant) -> Found:
    """Runs one variant in an empty folder."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"{case.id}_") as folder:
        done = [_parity(words.format(case=case.folder), Path(folder)) for words in variant.commands]
        paths = sorted(Path(folder).glob("runs/*/result.json"))
        result: dict[str, Any] = json.loads(paths[-1].read_text()) if paths else {}
    said = "\n".join(one.stdout + one.stderr for one in done)
    for path, name in ((str(case.folder), case.folder.name), (f"{folder}/", ""), (f"{sys.prefix}/", "")):
        said = said.replace(path, name)
    divergence = (result.get("numerics") or {}).get("first_divergence") or {}
    explanation, power = result.get("explanation") or {}, result.get("power") or {}
    rows = [(row["edit"].split("=")[0].split("@")[0], row["caught"]) for row in power.get("rows", [])]
    found = {
        "case": case.id,
        "variant": variant.name,
        "expected": wanted(variant),
        "commands": [words.format(case=case.folder.name) for words in variant.commands],
        "exit_codes": [one.returncode for one in done],
        "verdict": result.get("verdict") or ("REFUSED" if done[0].returncode == 2 else "none"),
        "class_": divergence.get("class") or "",
        "first": f"{divergence['phase']}/{divergence['tensor'] or ''}" if divergence else "",
        "outcome": explanation.get("outcome", ""),
        "edits": explanation.get("edits", []),
        "caught": [name for name, caught in rows if caught],
        "missed": [name for name, caught in rows if caught is False],
        "reasons": result.get("reasons", []),
        "printed": said,
    }
    wrong = list(wrongs(variant, found, said + json.dumps(result)))
    return Found(**found, wrong=wrong, seconds=round(time.monotonic() - began, 1))


def wanted(variant: Variant) -> dict[str, Any]:
    """What a variant expects, as it is kept with its finding."""
    content: dict[str, Any] = json.loads(json.dumps(asdict(variant)))
    return {name: value for name, value in content.items() if name != "miss"}


def _parity(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "parity", *words.split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def wrongs(expected: Variant, found: dict[str, Any], text: str) -> Iterator[str]:
    """One sentence for each thing that is not as expected.

    Args:
      found: the fields of `Found`.
      text: in which words are looked for.
    """
    codes = list(expected.exit_codes) or [_EXIT_CODES[expected.verdict]]
    if found["exit_codes"][: len(codes)] != codes:
        yield f"exit codes {found['exit_codes']}, expected {codes}"
    for name in ("verdict", "class_", "outcome"):
        wanted = getattr(expected, name)
        if wanted and found[name] != wanted:
            yield f"{name.rstrip('_')} {found[name] or 'none'}, expected {wanted}"
    if expected.first and not fnmatchcase(found["first"], expected.first):
        yield f"first difference {found['first'] or 'none'}, expected {expected.first}"
    if expected.edits and not _same_edits(expected, found["edits"]):
        yield f"confirmed {', '.join(found['edits']) or 'nothing'}, expected {', '.join(expected.edits)}"
    for name in ("caught", "missed"):
        if lacking := set(getattr(expected, name)) - set(found[name]):
            yield f"power does not list as {name}: {', '.join(sorted(lacking))}"
    plain = " ".join(text.split())
    yield from (f"does not say: {words}" for words in expected.words if words not in plain)
    yield from (f"says: {words}" for words in expected.absent if words in plain)
    if "Traceback" in text and expected.verdict != "FAILED":
        yield "a traceback was printed"


def _same_edits(expected: Variant, found: list[str]) -> bool:
    """The same names, and values within the tolerance."""
    wanted, got = (dict(re.split("=", edit) for edit in edits) for edits in (expected.edits, found))
    return wanted.keys() == got.keys() and all(
        abs(float(got[name]) - float(value)) <= expected.tolerance * abs(float(value))
        for name, value in wanted.items()
    )


def as_json(found: Found) -> str:
    """One line."""
    return json.dumps(asdict(found))
