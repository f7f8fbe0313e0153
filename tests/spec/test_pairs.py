"""What a user's `pair.py` may hold, how it is read in a process of its own, and how mistakes are told."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from spec import codec
from spec.data.folder import FolderSource
from spec.errors import RuleError
from spec.job import PREPARED_BATCHES
from spec.pairs import AdamW, Link, Pair, user_code
from spec.pairs.materialise import Outline
from spec.pairs.probe import distances, probe_values, zero_rows

HEAD = "import numpy as np\nfrom spec.pairs import Pair\npair = Pair(steps=3)\n"
GOOD = """
def batches(step):
    generator = np.random.default_rng([1, step])
    return {"x": generator.standard_normal((4, 3)), "n": generator.integers(0, 9, 4)}
"""

Run = Callable[..., CompletedProcess[str]]


def write(folder: Path, text: str = HEAD + GOOD) -> Path:
    (folder / "pair.py").write_text(text)
    for side in ("torch", "jax"):
        (folder / f"{side}_side.py").write_text("raise SystemExit('nobody imports a side here')")
    return folder


def test_a_pair_is_read_and_its_batches_written(tmp_path: Path, run_python: Run) -> None:
    write(tmp_path)
    run_python("-m", "spec.pairs", "outline", str(tmp_path), str(tmp_path / "out"))
    outline = codec.from_dict(Outline, json.loads((tmp_path / "out" / "outline.json").read_text()))
    assert (outline.rows, outline.pair.steps) == (4, 3)
    assert outline.arrays == {"x": "float64 [4, 3]", "n": "int64 [4]"} or "float32" in outline.arrays["x"]
    run_python("-m", "spec.pairs", "write", str(tmp_path), str(tmp_path / "batches"), "2")
    source = FolderSource(tmp_path / "batches")
    assert source.describe()["steps"] == PREPARED_BATCHES
    rows = source.rows(1, 0, 4)
    expected = np.random.default_rng([1, 1]).standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_array_equal(rows["x"], expected)


MISTAKES = {
    "no batches": (HEAD, "no batches()"),
    "no pair": ("def batches(step):\n    return {}\n", "no pair = Pair"),
    "another option": (HEAD.replace("steps=3", "stepz=3") + GOOD, "pair.py:3: TypeError"),
    "a wrong value": (HEAD.replace("steps=3", "init='numpy'") + GOOD, "pair.py:3: init 'numpy'"),
    "a syntax error": (
        HEAD + "def batches(step:\n",
        "pair.py:4: SyntaxError: '(' was never closed correct the",
    ),
    "an import that fails": ("import no_such\n" + HEAD + GOOD, "pair.py:1: ModuleNotFoundError"),
    "an error in batches": (HEAD + "def batches(step):\n    return y\n", "pair.py:5 in batches: NameError"),
    "no dictionary": (HEAD + "def batches(step):\n    return 3\n", "batches(0) is int"),
    "other rows": (
        HEAD + "def batches(step):\n    return {'x': np.ones(3), 'y': np.ones(4)}\n",
        "rows {'x': 3, 'y': 4}",
    ),
    "an empty dictionary": (
        HEAD + "def batches(step):\n    return {}\n",
        "batches(0) is an empty dictionary",
    ),
    "objects": (
        HEAD + "def batches(step):\n    return {'x': np.array([[1], [1, 2]], object)}\n",
        "x of batches(0) is object (2,) give every row as many numbers",
    ),
    "uneven rows": (
        HEAD + "def batches(step):\n    return {'x': [[1], [1, 2]]}\n",
        "give every row as many numbers",
    ),
    "text": (HEAD + "def batches(step):\n    return {'x': np.array(['a'])}\n", "x of batches(0) is <U1"),
    "large integers": (HEAD + "def batches(step):\n    return {'x': np.array([2**40])}\n", "32 bits"),
    "a batch that changes": (
        HEAD + "g = np.random.default_rng(0)\ndef batches(step):\n    return {'x': g.random(3)}\n",
        "x[0] of batches(0) changed",
    ),
    "a missing side": (HEAD.replace("steps=3", "torch='t.py'") + GOOD, "t.py: no such file"),
    "a file that hides a package": (HEAD.replace("steps=3", "torch='torch.py'") + GOOD, "torch.py"),
    "a framework": ("import sys, types\nsys.modules['jax'] = types\n" + HEAD + GOOD, "loads jax"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_one_error(tmp_path: Path, run_python: Run, name: str) -> None:
    text, message = MISTAKES[name]
    write(tmp_path, text)
    run_python("-m", "spec.pairs", "outline", str(tmp_path), str(tmp_path / "out"), code=2)
    error = json.loads((tmp_path / "out" / "error.json").read_text())
    assert message in " ".join(error.values()), error


def test_a_batch_of_another_shape_is_told(tmp_path: Path, run_python: Run) -> None:
    write(tmp_path, HEAD + "def batches(step):\n    return {'x': np.ones((4, 2 + (step > 1)))}\n")
    run_python("-m", "spec.pairs", "write", str(tmp_path), str(tmp_path / "out"), "3", code=2)
    error = json.loads((tmp_path / "out" / "error.json").read_text())
    assert "batches(2)" in error["numbers"] and error["mend"] == "pad the rows"


def test_a_pair_travels_as_json() -> None:
    pair = Pair(map=(("a", "b"), Link(torch="c", jax="d", axes=(1, 0))), optimizer=AdamW(max_norm=None))
    assert codec.from_dict(Pair, json.loads(json.dumps(codec.to_dict(pair)))) == pair
    assert pair.links == (Link(torch="a", jax="b"), Link(torch="c", jax="d", axes=(1, 0)))


def test_an_error_names_the_users_innermost_line(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def deep():\n    return 1 / 0\n")
    (tmp_path / "side.py").write_text(
        "import helper\ndef build():\n    return sorted([1], key=lambda _: helper.deep())\n"
    )
    module = user_code.load(tmp_path / "side.py", ["build"])
    with pytest.raises(RuleError) as caught, user_code.told(tmp_path / "side.py", "It builds."):
        module.build()
    assert caught.value.numbers == f"{tmp_path}/helper.py:2 in deep: ZeroDivisionError: division by zero"


def test_rows_whose_exact_gradient_is_zero_are_found() -> None:
    gradient = np.random.default_rng(0).standard_normal((6, 3))
    noise = np.concatenate([np.ones((2, 3)), np.full((2, 3), 1e-17), np.ones((2, 3))]) * gradient
    unread = noise.copy()
    unread[2:4] = 0
    big = {"big": gradient}
    assert zero_rows({"w": noise, **big}, {"w": noise * 1.5, **big}) == {"w": (2, 4)}
    dead = np.where(np.arange(len(noise))[:, None] % 2, 1e-17, 0.0) * np.ones_like(noise)
    assert zero_rows({"w": dead, **big}, {"w": dead * 1.5, **big}) == {"w": (0, len(noise))}
    assert zero_rows({"w": unread, **big}, {"w": unread, **big}) == {}
    # Zero on one side only is a difference, not a rounding.
    assert zero_rows({"w": noise, **big}, {"w": gradient, **big}) == {}


def test_probes_move_every_tensor_and_distances_see_them() -> None:
    initial = {"ones": np.ones(4, np.float32), "w": np.random.default_rng(0).standard_normal((5, 5))}
    moved = probe_values(initial)
    assert all((moved[name] != initial[name]).all() for name in initial)
    assert moved["w"].dtype == initial["w"].dtype
    np.testing.assert_array_equal(probe_values(initial)["w"], moved["w"])
    assert distances(initial, initial) == {"ones": 0.0, "w": 0.0}
    assert 0.05 < distances(initial, moved)["w"] < 0.2
    assert distances(initial, {"ones": np.full(4, np.nan), "w": moved["w"]})["ones"] == float("inf")
