"""Dropout masks: the published numbers of Philox, a function of their names alone, the right share."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from spec.errors import RuleError
from torch_impl.graph.random import Dropout, advance, philox_4x32, philox_words

# From the known-answer file of Random123 (kat_vectors), philox4x32 10.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_words(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    words = philox_4x32(tuple(torch.tensor([word]) for word in counter), key)  # type: ignore[arg-type]
    assert tuple(int(word) for word in words) == expected


def philox_numpy(counter: tuple[int, int, int, int], key: tuple[int, int]) -> list[int]:
    """Written again, with Python's unbounded integers."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ k, q & 0xFFFFFFFF, (p >> 32) ^ d ^ m, p & 0xFFFFFFFF
        k, m = (k + 0x9E3779B9) & 0xFFFFFFFF, (m + 0xBB67AE85) & 0xFFFFFFFF
    return [a, b, c, d]


def test_element_e_takes_word_e_mod_4_of_block_e_div_4() -> None:
    seed, draw, site, rank = (5 << 32) | 9, 3, 11, 2
    words = philox_words(seed, torch.tensor(draw), site, rank, 10)
    expected = [w for block in range(3) for w in philox_numpy((block, site, draw, rank), (9, 5))]
    assert words.tolist() == expected[:10]


def mask(layer: Dropout, shape: tuple[int, ...] = (64, 64)) -> torch.Tensor:
    return layer(torch.ones(shape)) != 0


def test_a_mask_depends_on_every_name_and_on_nothing_else() -> None:
    torch.manual_seed(0)
    first = mask(Dropout(0.5, seed=1, site=0))
    torch.manual_seed(1)
    assert torch.equal(first, mask(Dropout(0.5, seed=1, site=0)))
    moved = Dropout(0.5, seed=1, site=0)
    advance(moved)
    for other in (Dropout(0.5, seed=2, site=0), Dropout(0.5, 1, 1), Dropout(0.5, 1, 0, rank=1), moved):
        share = (mask(other) == first).float().mean().item()
        assert 0.45 < share < 0.55, "masks of other names are independent"


def test_the_share_kept_and_the_scale_are_right() -> None:
    n = 1 << 18
    out = Dropout(0.1, seed=3, site=0)(torch.full((n,), 2.0, dtype=torch.float64))
    kept = int((out != 0).sum())
    assert abs(kept - 0.9 * n) < 5 * math.sqrt(n * 0.09)
    np.testing.assert_array_equal(out[out != 0].unique().numpy(), [2.0 / 0.9])


def test_evaluation_and_probability_zero_change_nothing() -> None:
    x = torch.randn(8)
    assert torch.equal(Dropout(0.5, 1, 0).eval()(x), x) and torch.equal(Dropout(0.0, 1, 0)(x), x)


def test_recomputing_the_forward_meets_the_same_mask() -> None:
    model = nn.Sequential(nn.Linear(16, 16), Dropout(0.5, 1, 0), nn.Linear(16, 16), Dropout(0.5, 1, 1))
    advance(model)
    x = torch.randn(4, 16)
    plain = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    again = torch.autograd.grad(
        checkpoint(model, x, use_reentrant=False, preserve_rng_state=False).sum(), list(model.parameters())
    )
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


def test_impossible_settings_are_refused() -> None:
    for arguments in ((1.0, 0, 0), (-0.1, 0, 0), (0.1, -1, 0), (0.1, 1 << 64, 0), (0.1, 0, 1 << 32)):
        with pytest.raises(RuleError):
            Dropout(*arguments)
