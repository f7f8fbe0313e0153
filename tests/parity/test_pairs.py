"""Pairs through the real command line: written, run on one side, refused where something must be mended."""

import json
import shutil
from pathlib import Path

import pytest

from tests.parity.conftest import Parity, run_in

LITTLE_LLVM = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair as `init-pair` writes it, for all tests."""
    folder = tmp_path_factory.mktemp("written")
    assert "next: parity run mine/" in run_in(folder, "init-pair mine").stdout
    return folder / "mine"


@pytest.fixture
def mine(written: Path, tmp_path: Path) -> Path:
    """A copy of it for one test to change."""
    return shutil.copytree(written, tmp_path / "mine")


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.slow  # README's commands make the like.
def test_what_init_pair_writes_is_the_same_on_both_sides(parity: Parity, mine: Path) -> None:
    done = parity("run mine --steps 3 --no-time", **LITTLE_LLVM)
    assert done.stdout.startswith("SAME") and "map: 6 links, proven" in done.stdout
    assert "exists" in parity("init-pair mine", code=2).stderr


def test_tensors_without_a_counterpart_are_not_comparable(parity: Parity, mine: Path, tmp_path: Path) -> None:
    change(
        mine / "jax_side.py",
        "self.out = nnx.Linear(32, 4, rngs=rngs)",
        "self.out = nnx.Linear(32, 4, use_bias=False, rngs=rngs)",
    )
    done = parity("run mine --steps 3 --no-time", code=5)
    assert done.stdout.startswith("NOT_COMPARABLE  torch: no counterpart for out.bias [4]")
    content = json.loads(next(tmp_path.glob("runs/0001_*/result.json")).read_text())
    assert content["pair"]["unmatched"] == {"torch": ["out.bias [4]"], "jax": []}
    assert content["launches"] == [] and content["unmeasured"]["numerics"]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("pair.py", "# Tensors", 'map=[("hiden.weight", "hidden.kernel")],  #', "did you mean hidden.weight"),
        ("torch_side.py", "import torch", "import torhc", "torch_side.py:3: ModuleNotFoundError: No module"),
        (
            "torch_side.py",
            'reduction="sum"), len(labels_B)',
            'reduction="mean")',
            "loss returned a single array, torch.float",
        ),
        (
            "torch_side.py",
            "def loss",
            "def logged_lr(step):\n    return 'low'\n\n\ndef loss",
            "logged_lr(0) returned str",
        ),
    ],
)
def test_a_mistake_is_one_error_that_names_file_and_line(
    parity: Parity, mine: Path, file: str, old: str, new: str, message: str
) -> None:
    change(mine / file, old, new)
    done = parity("run mine --steps 3 --no-time", code=2, **LITTLE_LLVM)
    assert done.stdout == ""
    error = [line for line in done.stderr.splitlines() if not line.startswith(("torch:", "jax:", "pair:"))]
    assert len(error) <= 3 and message in "\n".join(error), done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run ./nowhere", "parity init-pair DIR"),
        ("run mine --data mine", "makes its own batches"),
        ("run mine --global-batch 3", "rows 16"),
        ("run mine --edit jax:gelu_erf=1", "jax side's file"),
        ("run mine --devices 3", "divide the global batch"),
    ],
)
def test_what_a_pair_cannot_be_asked_is_refused_before_anything_starts(
    parity: Parity, mine: Path, tmp_path: Path, words: str, message: str
) -> None:
    assert message in parity(words, code=2).stderr
    assert not list(tmp_path.glob("runs/0*"))


@pytest.mark.parametrize("words", ["--save-every 2", "--handoff 2", "--resume last"])
def test_what_nobody_can_save_is_refused_before_anything_starts(
    parity: Parity, mine: Path, tmp_path: Path, words: str
) -> None:
    bring_optimizers(mine, "torch.optim.Adam(named, lr=1e-4)", "optax.adam(1e-4)")
    stderr = parity(f"run mine --no-time --steps 4 {words}", code=2).stderr
    assert f"found: {words}, on a pair's own optimizer" in stderr
    assert not list(tmp_path.glob("runs/0*"))


@pytest.mark.parametrize("command", ["run mine --no-time", "bench mine", "train mine --backend torch"])
def test_a_mode_that_would_compile_ones_own_optimizer_is_refused_before_anything_starts(
    parity: Parity, mine: Path, tmp_path: Path, command: str
) -> None:
    bring_optimizers(mine, "torch.optim.Adam(named, lr=1e-4)", "optax.adam(1e-4)")
    stderr = parity(f"{command} --device cpu --mode torch=inductor", code=2).stderr
    assert stderr.count("nobody knows whether it compiles") == 1
    assert (
        "found: --mode torch=inductor, on a pair's own optimizer\n  mend:  take --mode torch=eager\n"
        in stderr
    )
    assert not list(tmp_path.glob("runs/0*"))


@pytest.mark.slow
@pytest.mark.parametrize("side", ["torch", "jax"])
def test_one_side_trains_alone(parity: Parity, mine: Path, tmp_path: Path, side: str) -> None:
    (mine / f"{'jax' if side == 'torch' else 'torch'}_side.py").write_text("raise SystemExit(3)")
    parity(f"train mine --backend {side} --steps 3 --no-time", **LITTLE_LLVM)
    content = json.loads(next(tmp_path.glob("runs/0001_*/result.json")).read_text())
    assert content["curves"][side]["steps"] == 3 and content["pair"]["links"] == []


@pytest.mark.slow
def test_a_planted_edit_of_the_step_is_found(parity: Parity, mine: Path) -> None:
    done = parity("run mine --steps 3 --no-time --edit jax:clip_eps=0.1", code=1, **LITTLE_LLVM)
    assert "clipped of step 0" in done.stdout


@pytest.mark.slow
def test_the_defaults_of_adam_are_one_rule(parity: Parity, mine: Path) -> None:
    """optax corrects its moments in float32, torch in float64; of a small update few digits stay."""
    bring_optimizers(mine, "torch.optim.Adam(named, lr=1e-4)", "optax.adam(1e-4)")
    done = parity("run mine --steps 20 --no-time", **LITTLE_LLVM)
    assert done.stdout.startswith("SAME") and "not one rule" not in done.stdout
    change(mine / "jax_side.py", "1e-4)", "1.0005e-4)")
    done = parity("run mine --steps 2 --no-time", code=1, **LITTLE_LLVM)
    assert done.stdout.startswith("DIFFERENT  first divergence: param of step 0")
    assert "on equal gradients, update 0 of" in done.stdout


def bring_optimizers(mine: Path, torch_makes: str, jax_makes: str) -> None:
    adamw = "AdamW(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, max_norm=1.0)"
    change(mine / "pair.py", adamw, "OwnOptimizer(max_norm=1.0)")
    change(mine / "pair.py", "import AdamW,", "import OwnOptimizer,")
    own = "\n\ndef optimizer({0}):\n    return {1}\n"
    with (mine / "torch_side.py").open("a") as file:
        file.write("\n\nimport torch\n" + own.format("named", torch_makes))
    with (mine / "jax_side.py").open("a") as file:
        file.write("\n\nimport optax\n" + own.format("", jax_makes))


@pytest.mark.slow
def test_optimizers_of_ones_own_are_compared_by_where_they_lead(
    parity: Parity, mine: Path, tmp_path: Path
) -> None:
    bring_optimizers(mine, "torch.optim.SGD(named, lr=0.1, momentum=0.9)", "optax.sgd(0.1, momentum=0.9)")
    done = parity("run mine --steps 4 --no-time", **LITTLE_LLVM)
    assert done.stdout.startswith("SAME") and "moments are each side's own" in done.stdout
    assert "own optimizer" in parity("run mine --edit jax:weight_decay=0", code=2).stderr
    # Another momentum on one side is another place.
    change(mine / "jax_side.py", "momentum=0.9", "momentum=0.8")
    done = parity("run mine --steps 4 --no-time", code=1, **LITTLE_LLVM)
    assert done.stdout.startswith("DIFFERENT  first divergence: loss of step 2")
