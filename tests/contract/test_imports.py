"""Who may import whom: the rules of pyproject.toml hold and bite, and a running referee has no framework."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("spec", "torch_impl", "jax_impl", "parity")
FRAMEWORKS = ("torch", "jax", "jaxlib", "flax", "optax")

IMPORT_EVERYTHING = """
import importlib, json, pkgutil, sys
package = importlib.import_module(sys.argv[1])
names = [m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(json.dumps({"modules": names, "loaded": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


def _lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_import_rules_hold() -> None:
    done = _lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("package", "imported"),
    [
        ("spec", "torch"),
        ("spec", "parity"),
        ("spec", "torch_impl"),
        ("torch_impl", "jax"),
        ("torch_impl", "jax_impl"),
        ("torch_impl", "parity"),
        ("jax_impl", "torch"),
        ("jax_impl", "torch_impl"),
        ("jax_impl", "parity"),
        ("parity", "torch"),
        ("parity", "flax"),
        ("parity", "jax_impl"),
    ],
)
def test_import_rules_bite(tmp_path: Path, package: str, imported: str) -> None:
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"import {imported}\n" if name == package else "")
    done = _lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout


def test_every_package_is_under_the_rules() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert tuple(config["root_packages"]) == PACKAGES


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("spec", (*FRAMEWORKS, "torch_impl", "jax_impl", "parity", "tyro", "rich", "msgspec")),
        ("parity", (*FRAMEWORKS, "torch_impl", "jax_impl", "transformers")),
        ("torch_impl", ("jax", "jaxlib", "flax", "optax", "jax_impl", "parity")),
        ("jax_impl", ("torch", "torch_impl", "parity")),
    ],
)
def test_nothing_forbidden_is_loaded_even_indirectly(
    run_python: Callable[..., subprocess.CompletedProcess[str]], package: str, forbidden: tuple[str, ...]
) -> None:
    seen = json.loads(run_python("-c", IMPORT_EVERYTHING, package).stdout.splitlines()[-1])
    assert seen["modules"], f"no modules found in {package}"
    assert not set(forbidden) & set(seen["loaded"])


def test_the_command_line_starts_without_a_framework(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    report = (
        "import json, sys, parity.cli; print(json.dumps(sorted(n.partition('.')[0] for n in sys.modules)))"
    )
    loaded = set(json.loads(run_python("-c", report).stdout.splitlines()[-1]))
    assert "parity" in loaded
    assert not loaded & {*FRAMEWORKS, "torch_impl", "jax_impl"}
