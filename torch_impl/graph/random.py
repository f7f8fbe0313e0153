"""Dropout whose mask is a function of (seed, rank, draw, site, element), computed on the device.

A mask comes from Philox 4x32-10 in integer arithmetic: key = seed, counter = (block, site, draw, rank), and
word e mod 4 of block e div 4 decides element e. `draw` is a counter on the device that `advance` moves once
for each micro-batch: launches of one graph differ, eager steps draw the same masks, and a backward that
computes the forward again (activation checkpointing) meets the same mask. Must not: use torch's generator,
which a graph launched past torch would leave standing still.
"""

import torch
from torch import Tensor, nn

from spec.errors import RuleError

_MASK = 0xFFFFFFFF
_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


class Dropout(nn.Module):
    """Zeroes elements with probability p and scales the others by 1 / (1 - p), while training.

    Args:
      p: in [0, 1).
      seed: 64 bits.
      site: tells the dropouts of a model apart.
      rank: tells ranks apart, whose rows are others.
    """

    draws: Tensor

    def __init__(self, p: float, seed: int, site: int, rank: int = 0) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise RuleError("A dropout probability lies in [0, 1).", f"p = {p}")
        if min(seed, site, rank) < 0 or max(site, rank) > _MASK or seed >> 64:
            raise RuleError("A seed has 64 bits, a site and a rank 32.", f"{seed}, {site}, {rank}")
        self.p, self.seed, self.site, self.rank = p, seed, site, rank
        self.register_buffer("draws", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Any shape; the same shape and dtype."""
        if not self.training or self.p == 0:
            return x
        words = philox_words(self.seed, self.draws, self.site, self.rank, x.numel())
        kept = words >= round(self.p * 2.0**32)
        return torch.where(kept.view(x.shape), x / (1 - self.p), torch.zeros_like(x))

    def extra_repr(self) -> str:
        """For printing."""
        return f"p={self.p}, seed={self.seed}, site={self.site}, rank={self.rank}"


@torch.no_grad()
def advance(module: nn.Module) -> None:
    """Moves every `Dropout` of a module on; to be called once before each forward that has its own masks."""
    draws = [part.draws for part in module.modules() if isinstance(part, Dropout)]
    if draws:
        torch._foreach_add_(draws, 1)


def philox_words(seed: int, draw: Tensor, site: int, rank: int, count: int) -> Tensor:
    """Words of Philox 4x32-10 as int64 in [0, 2**32), shape (count,), on the device of `draw`.

    Args:
      draw: 0-dim int64; its low 32 bits count.
    """
    assert count <= 1 << 34, "the block number has 32 bits"
    block = torch.arange(-(-count // 4), dtype=torch.int64, device=draw.device)
    fixed = torch.zeros_like(block)
    counter = (block, fixed + site, fixed + (draw & _MASK), fixed + rank)
    words = philox_4x32(counter, (seed & _MASK, seed >> 32))
    return torch.stack(words, dim=-1).view(-1)[:count]


def philox_4x32(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """One block for each counter, by Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).

    Args:
      counter: four int64 tensors of 32-bit words.
      key: two 32-bit words.
    """
    x0, x1, x2, x3 = counter
    key0, key1 = key
    for _ in range(_ROUNDS):
        # Products of 32-bit words wrap in int64 to the right 64 bits; the shift's sign bits are masked away.
        product0, product1 = x0 * _MULTIPLIER_0, x2 * _MULTIPLIER_1
        high0, high1 = (product0 >> 32) & _MASK, (product1 >> 32) & _MASK
        x0, x1, x2, x3 = high1 ^ x1 ^ key0, product1 & _MASK, high0 ^ x3 ^ key1, product0 & _MASK
        key0, key1 = (key0 + _WEYL_0) & _MASK, (key1 + _WEYL_1) & _MASK
    return x0, x1, x2, x3
