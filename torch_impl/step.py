"""The step, once: what it computes, in the order in which it is computed, before any compiler sees it.

    local gradient sums over micro-batches -> one all-reduce -> one division by the tokens of the global batch
    -> global norm -> clip -> AdamW at the learning rate of the table -> metrics

An update whose loss or gradient norm is not finite is refused on the device: parameters, moments, buffers and
the counter of updates stay as they are, and it is counted. State is changed in place, at fixed addresses.

Must not: synchronise with the device, read a number on the host, or branch on one; `compile.py`, and whatever
captures the step, rely on it. Counterpart: `jax_impl/step.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from spec.data.batches import micro_slices
from spec.edits import Constants, device_table
from spec.run import Problem
from torch_impl.graph.buckets import Overlap, put
from torch_impl.memory import Arena
from torch_impl.models import Side
from torch_impl.optimizer import adamw, clip_coefficient, clip_part, global_norm
from torch_impl.own_optimizer import OwnUpdate
from torch_impl.parallel import Ranks

Batch = dict[str, Tensor]
"""One rank's rows on the device."""
Moved = tuple[Tensor, Tensor, Tensor]
"""(param, m, v) of one part of the flat buffers."""
Rule = Callable[[Tensor, Moved, Tensor, Tensor, bool], Moved]
"""(clipped gradient, state, row of the step table, learning rate, whether it decays) -> the next state."""


@dataclass(frozen=True)
class Step:
    """The step as three parts, cut where a compiler must stop: at autograd's call and at the all-reduce."""

    loss: Callable[[torch.nn.Module, Batch], tuple[Tensor, Tensor]]
    """(module, rows of one micro-batch) -> (sum of losses, count)."""
    reduce: Callable[[Tensor], None]
    """Sums a flat buffer over all ranks, in place."""
    update: Callable[[Arena], None]
    """From the sums in the arena to its next state and metrics."""
    micro_batches: int
    overlap: Overlap | None = None
    """Reduces parts of the buffer while the last backward still runs; then `reduce` waits for them."""
    part: Callable[[list[Tensor], Tensor], list[Tensor]] | None = None
    """(gradient sums of one micro-batch, count) -> what is added up of them; None for all of it."""

    def __call__(self, arena: Arena, batch: Batch) -> None:
        """Advances the arena by one step on this rank's rows."""
        _keep_buffers(arena)
        num_rows = len(next(iter(batch.values())))
        for k, rows in enumerate(micro_slices(num_rows, self.micro_batches)):
            part = {name: values[rows] for name, values in batch.items()}
            loss_sum, count = self.loss(arena.module, part)
            first, last = k == 0, k == self.micro_batches - 1
            _count(arena, loss_sum, count, first, last)
            if last and self.overlap is not None:
                self.overlap.backward(arena, loss_sum, first)
            else:
                grads = torch.autograd.grad(loss_sum, arena.trainable, materialize_grads=True)
                put(arena.grads, self.part(list(grads), count) if self.part else list(grads), first)
        self.reduce(arena.sums)
        self.update(arena)


def make_step(side: Side, problem: Problem, constants: Constants, ranks: Ranks) -> Step:
    """The uncompiled step of a problem."""
    table = torch.from_numpy(device_table(problem, constants)).to(ranks.device)

    def loss(module: torch.nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        loss_sum, count = side.loss(module, batch)
        if constants.loss_mean:
            loss_sum, count = loss_sum / count, torch.ones_like(count)
        if constants.loss_scale != 1:
            loss_sum = loss_sum * constants.loss_scale
        if constants.grad_scale != 1:
            # Its value as it was, its derivative scaled.
            scaled = loss_sum * constants.grad_scale
            loss_sum = loss_sum.detach() + (scaled - scaled.detach())
        return loss_sum, count

    def adamw_rule(grad: Tensor, state: Moved, row: Tensor, lr: Tensor, decayed: bool) -> Moved:
        param, m, v = state
        return adamw(param, grad, m, v, lr, row[1], row[2], constants, decayed)

    def guarded(arena: Arena, rule: Rule, on_host: bool = False) -> None:
        guarded_update(arena, table, rule, constants.max_norm, constants.clip_eps, on_host=on_host)

    def update(arena: Arena) -> None:
        guarded(arena, adamw_rule)

    @torch.no_grad()
    def part(grads: list[Tensor], count: Tensor) -> list[Tensor]:
        wide = [grad.to(getattr(torch, problem.profile.accumulate)) for grad in grads]
        return clip_part(wide, count, constants.max_norm, constants.clip_eps)

    chosen = OwnUpdate(side.optimizer, guarded) if side.optimizer else update
    parts = part if constants.clip_parts else None
    return Step(loss, ranks.all_reduce, chosen, problem.micro_batches, part=parts)


@torch.no_grad()
def guarded_update(
    arena: Arena,
    table: Tensor,
    rule: Rule,
    max_norm: float | None,
    clip_eps: float = 0.0,
    rates: Tensor | None = None,
    on_host: bool = False,
) -> None:
    """From the sums in the arena to its next state and metrics; refused where a number is not finite.

    Args:
      table: (steps, columns), column 0 the learning rate; row t is for the update after t applied ones.
      rule: the optimizer.
      rates: factor on the learning rate of every trainable element; None for 1.
      on_host: the rule is not called for an update that is refused; the host waits to know.
    """
    loss_sum, tokens = arena.totals.unbind()
    loss = loss_sum / tokens
    grad = arena.grad.div_(tokens)
    norm = global_norm(grad)
    clip = clip_coefficient(norm, max_norm, clip_eps)
    row = table.index_select(0, arena.applied.clamp(max=len(table) - 1)).squeeze(0)
    finite = torch.isfinite(loss) & torch.isfinite(norm)

    groups = () if on_host and not bool(finite) else arena.groups()
    for decayed, cut in groups:
        state = arena.master[cut], arena.m[cut], arena.v[cut]
        lr = row[0] if rates is None else row[0] * rates[cut]
        for old, new in zip(state, rule(grad[cut] * clip, state, row, lr, decayed), strict=True):
            old.copy_(torch.where(finite, new, old))
    for name, buffer in arena.buffers.items():
        buffer.copy_(torch.where(finite, buffer, arena.buffers_before[name]))
    arena.applied.add_(finite)
    arena.skipped.add_(~finite)
    arena.refresh()
    arena.metrics.copy_(torch.stack([loss, norm, clip, row[0], arena.skipped[0], arena.rank_tokens[0]]))


@torch.no_grad()
def _keep_buffers(arena: Arena) -> None:
    for name, buffer in arena.buffers.items():
        arena.buffers_before[name].copy_(buffer)


@torch.no_grad()
def _count(arena: Arena, loss_sum: Tensor, count: Tensor, first: bool, last: bool) -> None:
    """Adds one micro-batch's loss and count; this rank's tokens are noted before anything is reduced."""
    put([arena.totals], [torch.stack([loss_sum.to(arena.sums.dtype), count.to(arena.sums.dtype)])], first)
    if last:
        arena.rank_tokens.copy_(arena.totals[1])
