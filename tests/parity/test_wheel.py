"""The wheel works outside of the repository: installed into a folder of its own, it runs a pair it wrote."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parity.conftest import ROOT


def run(argv: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **variables}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
def test_an_installed_wheel_writes_and_runs_a_pair(tmp_path: Path) -> None:
    source, site, user = tmp_path / "source", tmp_path / "site", tmp_path / "user"
    # From a copy: setuptools leaves a build folder where it works.
    shutil.copytree(
        ROOT,
        source,
        ignore=shutil.ignore_patterns(".venv", ".git", "runs", "__pycache__", ".*_cache", "build"),
    )
    user.mkdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    run([*pip, "wheel", ".", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)], source)
    (wheel,) = tmp_path.glob("*.whl")
    run([*pip, "install", "--no-deps", "--no-index", "--target", str(site), str(wheel)], tmp_path)
    shutil.rmtree(source)

    variables = {"PYTHONPATH": str(site), "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    where = run([sys.executable, "-c", "import parity; print(parity.__file__)"], user, **variables).stdout
    assert where.startswith(str(site))
    parity = [sys.executable, "-m", "parity"]
    run([*parity, "init-pair", "mine"], user, **variables)
    done = run([*parity, "run", "mine", "--steps", "2", "--no-time"], user, **variables)
    assert done.stdout.startswith("SAME")
    assert len(list(user.glob("runs/*/report.html"))) == 1, "the page's template and style are in the wheel"
    (user / "test_mine.py").write_text("def test_mine(parity):\n    parity.assert_same('mine', steps=2)\n")
    # The entry point alone loads the plugin.
    found = run([sys.executable, "-m", "pytest", "--fixtures", "-q"], user, **variables).stdout
    assert "Runs pairs and presets" in found
