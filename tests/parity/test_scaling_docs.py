"""The page about scaling is true: its commands run, and its table is the committed study's."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scaling import __main__ as scaling
from tests.contract.test_readme import NEEDS_GPU, read_blocks
from tests.parity.conftest import ROOT, environ

PAGE = (ROOT / "docs" / "scaling.md").read_text("ascii")
LINES = [line for block in read_blocks(PAGE) for line in block]
COMMAND = "python -m benchmarks.scaling "


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_of_the_page_runs(tmp_path: Path) -> None:
    """A study of real sides on one and two processes, torch.compile among them: two to four minutes."""
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks")
    env = environ()
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    for line in LINES:
        if NEEDS_GPU in line:
            continue
        argv = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    found = json.loads((tmp_path / "try" / "scaling.json").read_text())
    assert {row["devices"] for row in found["measured"]} == {1, 2}
    assert found["predictions"] == [], "one count predicts nothing"
    assert [(row["verdict"], row["devices"]) for row in found["loss"]] == [("SAME", 2)] * 2
    assert all(row["max_rel"] < row["tolerance"] for row in found["loss"])


def test_every_option_of_the_page_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(LINES) == 5 and sum(NEEDS_GPU in line for line in LINES) == 1
    for line in LINES:
        scaling.parser().parse_args(line.removeprefix(COMMAND).split(" #")[0].split())
    words = set(re.findall(r"`(--[a-z-]+)", PAGE)) - {"--trace", "--global-batch"}
    capsys.readouterr()
    for name in ("measure", "predict", "report"):
        with pytest.raises(SystemExit):
            scaling.parser().parse_args([name, "--help"])
    helped = capsys.readouterr().out
    assert {word for word in words if word not in helped} == set()


def test_the_table_of_the_page_is_the_committed_study() -> None:
    folder = ROOT / "benchmarks" / "results" / "scaling_h200"
    found = json.loads((folder / "scaling.json").read_text())
    families = {"torch graph": "torch", "torch DDP": "torch ddp", "jax": "jax"}
    rows = re.findall(r"^\| `([\w-]+)`, (torch graph|torch DDP|jax).*?\|(.*)\|$", PAGE, re.MULTILINE)
    assert len(rows) == 11
    for preset, words, cells in rows:
        key = preset, families[words]
        measured = {row["devices"]: row for row in found["measured"] if (row["preset"], row["family"]) == key}
        held = [row for row in found["predictions"] if (row["preset"], row["family"]) == key]
        known = [
            *(measured.get(n, {}).get("step_ms", {}).get("value") for n in (1, 2)),
            measured.get(2, {}).get("efficiency", {}).get("value"),
            held[0]["predicted_ms"]["value"],
        ]
        numbers = [number for cell in cells.split("|") for number in re.findall(r"[\d.]+", cell) or [""]]
        shown = [float(number) if number else None for number in numbers]
        known += held[0]["ci95_ms"] or []
        assert len(shown) == len(known), key
        for there, here in zip(shown, known, strict=True):
            assert there == pytest.approx(here, rel=2e-3) if there is not None else here is None, key
