"""Buckets: parts of the flat gradient buffer that are reduced while backward still makes the others.

A bucket is a range of the arena's `sums`. In the last micro-batch a hook on each parameter takes its
gradient as it comes; when the last one of a bucket is there, they are written to the flat buffer and its
all-reduce starts on a second stream. Eager and captured steps run these lines alike, so one plan gives the
same bits in both. Must not: change what is summed, or its dtype; only the ranges in which it travels.

Legend: an element is one number of `sums`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

AllReduce = Callable[[Tensor], None]
"""Sums a flat tensor over all ranks in place, on the current stream."""


class Sums(Protocol):
    """What is used of the arena."""

    sums: Tensor
    grads: list[Tensor]
    trainable: list[torch.nn.Parameter]


@dataclass(frozen=True)
class Bucket:
    """Elements [start, stop) of the flat buffer and the gradients that lie in them, by index."""

    start: int
    stop: int
    members: tuple[int, ...]


def plan_buckets(
    grads: Sequence[Tensor], sums: Tensor, bucket_bytes: int, border: int = 0
) -> tuple[Bucket, ...]:
    """Ranges that cover the whole buffer; one smaller than `bucket_bytes` begins at 0 or at the border.

    Backward ends with the parameters that the model uses first, so ranges are cut from the end of each group,
    and what is left over at its beginning is a bucket of its own and travels last.

    Args:
      border: element at which the second group begins. No bucket reaches across: biases of the first layers
        would keep the weights of the last ones waiting.
    """
    size = sums.element_size()
    starts = {i: (grad.data_ptr() - sums.data_ptr()) // size for i, grad in enumerate(grads)}
    buckets: list[Bucket] = []
    stop, members = sums.numel(), list[int]()
    for i in sorted(starts, key=lambda i: starts[i], reverse=True):
        members.append(i)
        if (stop - starts[i]) * size >= bucket_bytes or starts[i] in (0, border):
            buckets.append(Bucket(starts[i], stop, tuple(members)))
            stop, members = starts[i], []
    assert stop == 0 and not members, "the first gradient lies at the beginning of the buffer"
    return tuple(buckets)


class Overlap:
    """The last micro-batch's backward with the reduction in it.

    Args:
      buckets: from `plan_buckets`.
      all_reduce: of one bucket.
      stream: where all-reduces run; None reduces where backward runs (on a CPU).
    """

    def __init__(
        self, buckets: Sequence[Bucket], all_reduce: AllReduce, stream: torch.cuda.Stream | None
    ) -> None:
        self._buckets, self._all_reduce, self._stream = tuple(buckets), all_reduce, stream

    def backward(self, arena: Sums, loss_sum: Tensor, first: bool) -> None:
        """Gradients of the loss, added to the sums (written, where `first`) and reduced on their way.

        The totals at the end of the sums are already there; they travel with the bucket that holds that end.
        """
        arrivals = _Arrivals(self, arena, first)
        hooks = [p.register_hook(partial(arrivals.take, i)) for i, p in enumerate(arena.trainable)]
        try:
            grads = torch.autograd.grad(loss_sum, arena.trainable, materialize_grads=True)
        finally:
            for hook in hooks:
                hook.remove()
        # A parameter that the loss does not use has no hook called; its gradient is zero.
        for i in arrivals.missing():
            arrivals.take(i, grads[i])

    def join(self) -> None:
        """Whatever comes next on the current stream waits for the reductions."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)

    def reduce(self, part: Tensor) -> None:
        """Starts the all-reduce of a part of the buffer, after what is on the current stream."""
        if self._stream is None:
            self._all_reduce(part)
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            self._all_reduce(part)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """In the order in which they were cut."""
        return self._buckets


class _Arrivals:
    """Gradients of one backward as they come in."""

    def __init__(self, overlap: Overlap, arena: Sums, first: bool) -> None:
        self._overlap, self._arena, self._first = overlap, arena, first
        self._bucket_of = {i: bucket for bucket in overlap.buckets for i in bucket.members}
        self._here: dict[Bucket, dict[int, Tensor]] = {bucket: {} for bucket in overlap.buckets}
        self._taken: set[int] = set()

    @torch.no_grad()
    def take(self, index: int, grad: Tensor) -> None:
        """One gradient; the last of a bucket sends it off."""
        bucket = self._bucket_of[index]
        here = self._here[bucket]
        here[index] = grad
        self._taken.add(index)
        if len(here) == len(bucket.members):
            put([self._arena.grads[i] for i in here], list(here.values()), self._first)
            here.clear()
            self._overlap.reduce(self._arena.sums[bucket.start : bucket.stop])

    def missing(self) -> list[int]:
        """Parameters whose gradient has not come."""
        return [i for i in range(len(self._arena.trainable)) if i not in self._taken]


@torch.no_grad()
def put(targets: list[Tensor], values: list[Tensor], first: bool) -> None:
    """Writes (the first micro-batch) or adds sums, each value rounded once to the dtype of where it goes."""
    if first:
        torch._foreach_copy_(targets, values)
    else:
        torch._foreach_add_(targets, values)
