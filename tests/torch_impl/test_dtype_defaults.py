"""A default that hangs on the dtype is the run's, also where the run is asked about in float64."""

from pathlib import Path

import pytest
import torch

from spec.workloads.pair import PairFiles
from tests.spec.pair_problem import pair_problem
from torch_impl.models.pair import load_side

SIDE = """
import torch.nn.functional as F
from torch import nn


def build():
    return nn.RMSNorm(4)


def loss(model, batch):
    by_name = F.rms_norm(batch["x"], [4], weight=model.weight, eps=None)
    return (model(batch["x"]) + by_name).sum() / 2, batch["x"].shape[0]
"""


@pytest.mark.parametrize(("computes", "eps"), [("float32", 2.0**-23), ("bfloat16", 2.0**-7)])
def test_an_rmsnorm_without_an_eps(tmp_path: Path, computes: str, eps: float) -> None:
    (tmp_path / "torch_side.py").write_text(SIDE)
    problem = pair_problem(precision="f64")
    side = load_side(PairFiles(torch=str(tmp_path / "torch_side.py"), jax="", computes=computes), problem)
    x = 1e-3 * torch.arange(1.0, 9.0, dtype=torch.float64).reshape(2, 4)
    total, _ = side.loss(side.build().double(), {"x": x})
    meant = (x / torch.sqrt(x.square().mean(1, keepdim=True) + eps)).sum()
    torch.testing.assert_close(total, meant, rtol=1e-12, atol=0)
