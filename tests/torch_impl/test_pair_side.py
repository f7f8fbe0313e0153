"""A user's torch side, as it is loaded."""

from pathlib import Path

import torch

from spec.workloads.pair import PairFiles
from tests.spec.pair_problem import pair_problem
from torch_impl.models.pair import load_side

SIDE = """
from torch import nn


def build():
    return nn.Linear(2, 2)


def loss(model, batch):
    return model(batch["x"]).sum(), 1
"""


def first_weights(folder: Path, seed: int) -> torch.Tensor:
    (folder / "torch_side.py").write_text(SIDE)
    problem = pair_problem(seed_weights=seed)
    files = PairFiles(torch=str(folder / "torch_side.py"), jax="", computes="float32")
    return next(load_side(files, problem).build().parameters())


def test_a_seed_of_any_size_seeds_the_first_weights(tmp_path: Path) -> None:
    """Presets take any, and torch's generator 64 bits."""
    small = first_weights(tmp_path, 7)
    torch.manual_seed(7)
    assert torch.equal(small, torch.nn.Linear(2, 2).weight)
    large, next_one = (first_weights(tmp_path, 10**23 + i) for i in range(2))
    assert not torch.equal(large, next_one)
