"""Buckets cover the buffer once, fill as backward goes, and leave the sums of one flat reduction."""

import itertools
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from torch_impl.graph.buckets import Overlap, plan_buckets, put


class Tied(nn.Module):
    """Two uses of one weight, one parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.middle = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.unused = nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        for layer in self.middle:
            x = torch.tanh(layer(x))
        return x @ self.first.weight


@dataclass
class Flat:
    """An arena as far as buckets see it: slots of 16 elements and two totals at the end."""

    module: nn.Module
    trainable: list[nn.Parameter] = field(init=False)
    sums: Tensor = field(init=False)
    grads: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.trainable = list(self.module.parameters())
        starts, end = [], 0
        for parameter in self.trainable:
            starts.append(end)
            end += -(-parameter.numel() // 16) * 16
        self.sums = torch.zeros(end + 16, dtype=torch.float64)
        self.grads = [
            self.sums[s : s + p.numel()].view(p.shape) for s, p in zip(starts, self.trainable, strict=True)
        ]

    def count(self, loss_sum: Tensor, count: Tensor, first: bool) -> None:
        put([self.sums[-16:-14]], [torch.stack([loss_sum.detach(), count.double()])], first)


@pytest.fixture
def arena() -> Flat:
    torch.manual_seed(0)
    return Flat(Tied().double())


def loss_of(arena: Flat, seed: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return arena.module(x).square().sum(), torch.tensor(24)


def flat_sums(arena: Flat, seeds: range) -> Tensor:
    sums = torch.zeros_like(arena.sums)
    for seed in seeds:
        loss_sum, count = loss_of(arena, seed)
        for target, grad in zip(
            arena.grads,
            torch.autograd.grad(loss_sum, arena.trainable, materialize_grads=True),
            strict=True,
        ):
            start = target.storage_offset()
            sums[start : start + grad.numel()] += grad.flatten()
        sums[-16] += loss_sum.detach()
        sums[-15] += count
    return sums


@pytest.mark.parametrize("bucket_bytes", [1, 300, 700, 10**9])
def test_buckets_cover_the_buffer_once_and_hold_whole_gradients(arena: Flat, bucket_bytes: int) -> None:
    buckets = plan_buckets(arena.grads, arena.sums, bucket_bytes)
    ends = sorted((bucket.start, bucket.stop) for bucket in buckets)
    assert ends[0][0] == 0 and ends[-1][1] == arena.sums.numel()
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ends))
    assert sorted(i for bucket in buckets for i in bucket.members) == list(range(len(arena.grads)))
    for bucket in buckets:
        for i in bucket.members:
            start = arena.grads[i].storage_offset()
            assert bucket.start <= start and start + arena.grads[i].numel() <= bucket.stop
    if bucket_bytes == 10**9:
        assert len(buckets) == 1


def test_no_bucket_reaches_across_the_border(arena: Flat) -> None:
    border = arena.grads[5].storage_offset()
    buckets = plan_buckets(arena.grads, arena.sums, 10**9, border)
    assert [(bucket.start, bucket.stop) for bucket in buckets] == [(border, arena.sums.numel()), (0, border)]


@pytest.mark.parametrize("bucket_bytes", [1, 300, 10**9])
def test_sums_equal_one_flat_reduction_bit_for_bit(arena: Flat, bucket_bytes: int) -> None:
    expected = flat_sums(arena, range(2)) * 2
    reduced: list[int] = []

    def all_reduce(part: Tensor) -> None:
        reduced.append(part.storage_offset())
        part.mul_(2)

    overlap = Overlap(plan_buckets(arena.grads, arena.sums, bucket_bytes), all_reduce, None)
    arena.sums.copy_(flat_sums(arena, range(1)))
    loss_sum, count = loss_of(arena, 1)
    arena.count(loss_sum, count, False)
    overlap.backward(arena, loss_sum, False)
    overlap.join()
    assert torch.equal(arena.sums, expected)
    assert len(reduced) == len(set(reduced)) == len(overlap.buckets)


def test_a_bucket_leaves_while_backward_still_runs(arena: Flat) -> None:
    order: list[str] = []
    arena.module.first.bias.register_hook(lambda grad: order.append("first.bias"))  # type: ignore[union-attr]
    overlap = Overlap(
        plan_buckets(arena.grads, arena.sums, 1), lambda part: order.append(str(part.storage_offset())), None
    )
    loss_sum, count = loss_of(arena, 0)
    arena.count(loss_sum, count, True)
    overlap.backward(arena, loss_sum, True)
    last_layer = str(arena.grads[6].storage_offset())
    assert order.index(last_layer) < order.index("first.bias")


def test_hooks_are_gone_afterwards(arena: Flat) -> None:
    overlap = Overlap(plan_buckets(arena.grads, arena.sums, 1), lambda part: None, None)
    overlap.backward(arena, loss_of(arena, 0)[0], True)
    before = arena.sums.clone()
    torch.autograd.grad(loss_of(arena, 5)[0], arena.trainable, allow_unused=True)
    assert torch.equal(arena.sums, before)
    assert not any(p._backward_hooks for p in arena.trainable)
