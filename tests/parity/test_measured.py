"""`parity run --judge measured` with both real sides: clean runs agree, changes are found at their origin."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.parity.test_end_to_end import run

WORDS = "run toy-mlp --steps 8 --no-time --judge measured"
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tmp_path_factory.mktemp("clean"), WORDS, code=0)


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A change of 1e-9 relative: nothing that float32 could show."""
    return run(tmp_path_factory.mktemp("hidden"), f"{WORDS} --edit jax:clip_eps=1e-9", code=0)


@pytest.mark.slow  # A measured run each; README's commands make one.
def test_a_clean_run_agrees_with_floors_and_truths_of_its_own(clean: dict[str, Any]) -> None:
    numerics = clean["numerics"]
    lockstep = numerics["lockstep"]
    assert clean["verdict"] == "SAME"
    assert numerics["latent"] == []
    assert numerics["first_divergence"] is None
    assert {"0", "1", "7"} < set(lockstep["probes"])
    assert "a clipped step" in lockstep["probes"].values()
    assert lockstep["found"] == {"same": lockstep["compared"]}
    assert (lockstep["reruns"], lockstep["truths"]) == (8, True)
    assert {row["phase"] for row in lockstep["rows"]} >= {"act", "loss", "grad", "clipped", "m", "v", "param"}
    assert "latent" not in numerics["unmeasured"]


@pytest.mark.slow  # A measured run each; README's commands make one.
def test_the_floor_of_the_loss_is_the_drift_from_float64(clean: dict[str, Any]) -> None:
    loss = clean["numerics"]["loss"]
    assert loss["tolerance_source"] == "measured"
    assert loss["floor"] == max(loss["drift"].values()) > 0
    assert loss["tolerance"] == pytest.approx(8 * loss["floor"])
    assert loss["truth_max_rel"] < 1e-13, "two float64 runs"
    assert loss["max_rel"] <= loss["tolerance"]


@pytest.mark.slow  # A measured run each; README's commands make one.
def test_every_row_is_within_its_floors(clean: dict[str, Any]) -> None:
    for row in clean["numerics"]["lockstep"]["rows"]:
        numbers = row["numbers"]
        assert numbers["semantic_rms_rel"] < 1e-12, row
        assert all(value < 8 for value in numbers["error_in_floors"].values()), row


@pytest.mark.slow  # A measured run each; README's commands make one.
def test_a_meaning_below_the_noise_is_latent_and_named_where_it_begins(hidden: dict[str, Any]) -> None:
    latent = hidden["numerics"]["latent"]
    assert hidden["verdict"] == "SAME"
    assert (latent[0]["step"], latent[0]["phase"]) == (0, "clipped")
    assert latent[0]["numbers"]["mean_ratio"] == pytest.approx(1 + 1e-9 / 1.1, abs=3e-10), "norm near 1.1"
    assert {row["phase"] for row in latent} <= {"clipped", "m", "v", "param"}
    assert any("latent" in reason for reason in hidden["numerics"]["reasons"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "phase", "class_"),
    [
        ("--precision f64 --edit jax:clip_eps=1e-9", "clipped", "semantics"),
        ("--edit jax:clip_eps=1e-6", "clipped", "semantics"),
        ("--edit torch:loss_scale=1.0001", "loss", "semantics"),
        ("--edit jax:adam_eps=1e-6", "param", "semantics"),
    ],
)
def test_a_planted_change_is_different_where_it_begins(
    tmp_path: Path, words: str, phase: str, class_: str
) -> None:
    """A minute each: five launches."""
    found = run(tmp_path, f"{WORDS} {words}", code=1)["numerics"]["first_divergence"]
    assert (found["step"], found["phase"], found["class"]) == (0, phase, class_)
    assert found["numbers"]["semantic_rms_rel"] > 1e-12


CASTING = {
    "torch_side.py": ("self.hidden(x)", "self.hidden(x).bfloat16().to(x.dtype)"),
    "jax_side.py": ("self.hidden(x_BI)", "self.hidden(x_BI).astype(jnp.bfloat16).astype(x_BI.dtype)"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("casting", "code"), [(("torch_side.py", "jax_side.py"), 0), (("jax_side.py",), 1)])
def test_casts_that_both_sides_make_are_meant(tmp_path: Path, casting: tuple[str, ...], code: int) -> None:
    """A minute each: seven launches."""
    pair = tmp_path / "pair"
    shutil.copytree(ROOT / "examples" / "toy_mlp", pair)
    (pair / "torch_side.py").write_text(TORCH_SIDE)
    for name in casting:
        text = (pair / name).read_text()
        assert CASTING[name][0] in text
        (pair / name).write_text(text.replace(*CASTING[name]))
    found = run(tmp_path, f"run {pair} --steps 6 --no-time --judge measured", code=code)["numerics"]
    notes = [note for note in found["lockstep"]["notes"] if " casts in " in note]
    assert [note.partition(" ")[0] for note in notes] == [name.partition("_")[0] for name in casting]
    assert all("bfloat16" in note for note in notes)
    if code:
        assert found["first_divergence"]["class"] == "precision"


TORCH_SIDE = '''"""The toy MLP in PyTorch, as a class."""

import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(nn.functional.silu(self.hidden(x)))


def build() -> nn.Module:
    return Net()


def loss(model, batch):
    error = model(batch["x"]) - batch["y"]
    return torch.sum(error * error), error.numel()
'''
