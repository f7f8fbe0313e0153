"""Norm, clipping and AdamW against NumPy in float64."""

import numpy as np
import torch

from spec.edits import constants
from tests.torch_impl.references import adamw_in_numpy
from tests.torch_impl.small import mlp_problem
from torch_impl.optimizer import adamw, clip_coefficient, global_norm

CONSTANTS = constants(mlp_problem())


def test_norm_of_a_million_float32_is_right_to_the_last_digits() -> None:
    """torch.linalg.vector_norm is off by 1e-5 here; a pairwise sum by a few roundings of 6e-8."""
    values = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)
    truth = np.sqrt(np.sum(values.astype(np.float64) ** 2))
    assert abs(global_norm(torch.from_numpy(values)).item() / truth - 1) < 3e-7


def test_clip_coefficient() -> None:
    def clip(norm: float, max_norm: float | None, eps: float = 0.0) -> float:
        return clip_coefficient(torch.tensor(norm, dtype=torch.float64), max_norm, eps).item()

    assert clip(4.0, 1.0) == 0.25
    assert clip(1.0, 1.0) == 1.0
    assert clip(0.5, 1.0) == 1.0
    assert clip(0.0, 1.0) == 1.0
    assert clip(1.0, 1.0, eps=1.0) == 0.5
    assert clip(1e9, None) == 1.0
    assert np.isnan(clip(float("nan"), 1.0))
    assert clip(float("inf"), 1.0) == 0.0
    assert clip(3.0, 0.7) == 0.7 / 3.0


def test_adamw_is_its_formula_on_both_groups() -> None:
    generator, optimizer = np.random.default_rng(0), mlp_problem().optimizer
    start = [generator.standard_normal(100) for _ in range(3)]
    param, grad, m = start
    v = generator.standard_normal(100) ** 2
    lr, t = 1e-2, 7
    scalars = [
        torch.tensor(x, dtype=torch.float64) for x in (lr, 1 - optimizer.beta1**t, 1 - optimizer.beta2**t)
    ]
    for decayed in (True, False):
        arrays = [torch.from_numpy(array) for array in (param, grad, m, v)]
        found = adamw(*arrays, *scalars, CONSTANTS, decayed)
        expected = adamw_in_numpy(param, grad, m, v, lr, t, optimizer, decayed)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-14, atol=1e-16)


def test_adamw_leaves_zeros_at_zero() -> None:
    """What lies between parameters in a flat buffer stays zero."""
    zeros = torch.zeros(4)
    lr, correction = torch.tensor(0.1), torch.tensor(0.5)
    for result in adamw(zeros, zeros, zeros, zeros, lr, correction, correction, CONSTANTS, True):
        assert torch.equal(result, zeros)
