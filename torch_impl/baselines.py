"""Baselines: the step as PyTorch users write it, to measure ours against.

A module, DistributedDataParallel, `clip_grad_norm_`, `torch.optim.AdamW` and, where the name says so,
`torch.compile`. They obey the precision table, since a faster step of other numbers would be no comparison:
in the bf16 profile the optimizer and DDP hold float32 masters, and the model reads their bfloat16 rounding.
What stays stock differs a little in meaning: clipping divides by norm + 1e-6, the decay multiplies the
parameter, and no update is refused. Must not: take anything from `step.py`. Counterpart:
`jax_impl/baselines.py`.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from spec.data.batches import micro_slices
from spec.edits import Constants, device_table
from spec.errors import RuleError
from spec.params import ParamSpec
from spec.run import Problem
from torch_impl.memory import METRICS, describe_parameter, parameter_rows, tied_names
from torch_impl.models import Side
from torch_impl.parallel import Ranks
from torch_impl.runtime import compiler_options
from torch_impl.step import Batch

_STOCK_CLIP_EPS = 1e-6
"""What `clip_grad_norm_` adds to the norm."""


class Baseline:
    """State and step in one, as the objects it is made of are.

    Args:
      name: `eager` (one process), `ddp`, `compile` or `reduce-overhead` (DDP around both where there are
        several processes).

    Raises:
      RuleError: eager was asked for on several processes.
    """

    def __init__(self, name: str, side: Side, problem: Problem, constants: Constants, ranks: Ranks) -> None:
        if name == "eager" and ranks.world_size > 1:
            raise RuleError(
                "The eager baseline is one process's.",
                f"{ranks.world_size} processes",
                "take baseline:ddp",
            )
        profile = problem.profile
        self._ranks, self._micro_batches = ranks, problem.micro_batches
        self._max_norm = float("inf") if constants.max_norm is None else constants.max_norm
        self.module = _materialised(side.build(), ranks.device, getattr(torch, profile.master))
        self.ties = tied_names(self.module)
        rows = parameter_rows(self.module, problem.parameter_table())
        self._optimizer = _stock_adamw(self.module, rows, constants)
        self._rates = device_table(problem, constants)[:, 0].tolist()

        reads = (
            self.module
            if profile.compute == profile.master
            else _Rounded(self.module, getattr(torch, profile.compute))
        )
        self._model = _in_ddp(reads, ranks) if name == "ddp" or ranks.world_size > 1 else reads
        self._loss = side.loss
        self._replays = name == "reduce-overhead"
        if name in ("compile", "reduce-overhead"):
            options = compiler_options(profile) | {"triton.cudagraphs": self._replays}
            self._loss = torch.compile(side.loss, dynamic=False, options=options)

        self.applied, self.skipped = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
        self.metrics = torch.zeros(
            len(METRICS), dtype=getattr(torch, profile.accumulate), device=ranks.device
        )

    def step(self, batch: Batch) -> None:
        """One training step on this rank's rows."""
        update = min(int(self.applied), len(self._rates) - 1)
        for group in self._optimizer.param_groups:
            group["lr"] = self._rates[update]
        # Replayed graphs own the gradients they return, so sums over micro-batches need memory of their own.
        self._optimizer.zero_grad(set_to_none=not self._replays or self._micro_batches == 1)
        loss, rank_tokens = self._backward(batch)
        norm = nn.utils.clip_grad_norm_(self._parameters(), self._max_norm)
        self._optimizer.step()
        self.applied += 1

        clip = (self._max_norm / (norm + _STOCK_CLIP_EPS)).clamp(max=1.0)
        lr, skipped = torch.full_like(loss, self._rates[update]), torch.zeros_like(loss)
        self.metrics.copy_(torch.stack([loss, norm, clip, lr, skipped, rank_tokens]))

    def _backward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Leaves the gradients of the mean loss of the global batch; returns that loss and this rank's count.

        DDP averages over ranks, so the sum of losses is multiplied by ranks / tokens: before the backward
        where the tokens are known by then, which is without accumulation, and else afterwards.
        """
        slices = micro_slices(len(next(iter(batch.values()))), self._micro_batches)
        totals = torch.zeros_like(self.metrics[:2])
        rank_tokens = scale = totals[0]
        for k, rows in enumerate(slices):
            part = {name: values[rows] for name, values in batch.items()}
            is_last = k == len(slices) - 1
            with nullcontext() if is_last else self._without_reduction():
                if self._replays:
                    torch.compiler.cudagraph_mark_step_begin()
                loss_sum, count = self._loss(self._model, part)
                totals += torch.stack([loss_sum.detach(), count])
                if is_last:
                    rank_tokens = totals[1].clone()
                    self._ranks.all_reduce(totals)
                    scale = self._ranks.world_size / totals[1]
                loss_sum.backward(scale if len(slices) == 1 else None)
        if len(slices) > 1:
            torch._foreach_mul_([p.grad for p in self._parameters() if p.grad is not None], scale)
        return totals[0] / totals[1], rank_tokens

    def tensors(self, phase: str) -> dict[str, Tensor]:
        """Tensors by canonical name; `param`, `m`, `v` and `buffer` are live.

        Raises:
          RuleError: `grad` was asked for, which clipping has written over.
        """
        if phase == "buffer":
            return dict(self.module.named_buffers())
        if phase == "grad":
            raise RuleError(
                "What is observed exists after the step.",
                "grad of a baseline, whose clipping works in place",
                "observe clipped instead",
            )
        read = {
            "param": lambda parameter: parameter.detach(),
            "clipped": lambda parameter: parameter.grad,
            "m": lambda parameter: self._optimizer.state[parameter]["exp_avg"],
            "v": lambda parameter: self._optimizer.state[parameter]["exp_avg_sq"],
        }[phase]
        named = self.module.named_parameters()
        return {name: read(p) for name, p in named if p.requires_grad or phase == "param"}

    def describe(self) -> list[dict[str, Any]]:
        """What each parameter is, for the manifest: name, shape, dtype, decayed, trainable."""
        decayed = {
            id(p) for group in self._optimizer.param_groups for p in group["params"] if group["weight_decay"]
        }
        return [
            describe_parameter(name, parameter, id(parameter) in decayed, parameter.requires_grad)
            for name, parameter in self.module.named_parameters()
        ]

    def refresh(self) -> None:
        """Tells the optimizer how many updates the loaded state has had."""
        for state in self._optimizer.state.values():
            state["step"].fill_(int(self.applied))

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]

    def _without_reduction(self) -> AbstractContextManager[None]:
        """The context of every micro-batch but the last."""
        return self._model.no_sync() if isinstance(self._model, DistributedDataParallel) else nullcontext()


class _Rounded(nn.Module):
    """A model that is read through one rounding of its parameters, whose gradients are rounded likewise."""

    def __init__(self, inner: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner, self._dtype = inner, dtype

    def forward(self, *inputs: Tensor) -> Any:
        """What the inner model returns."""
        rounded = {name: parameter.to(self._dtype) for name, parameter in self.inner.named_parameters()}
        return torch.func.functional_call(self.inner, rounded, inputs)


def _materialised(module: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The module on the device; parameters that have no memory yet get some, to be loaded later."""
    if any(parameter.is_meta for parameter in module.parameters()):
        return module.to(dtype).to_empty(device=device)
    return module.to(device, dtype)


def _stock_adamw(module: nn.Module, rows: dict[str, ParamSpec], constants: Constants) -> torch.optim.AdamW:
    """torch's AdamW on two groups, its moments made at once so that a state can be loaded into them."""
    named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    groups = [
        {
            "params": [parameter for name, parameter in named.items() if rows[name].decayed == decayed],
            "weight_decay": constants.weight_decay if decayed else 0.0,
        }
        for decayed in (True, False)
    ]
    betas = (constants.beta1, constants.beta2)
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=constants.adam_eps, fused=True)
    for parameter in named.values():
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter, requires_grad=False),
            "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
        }
    return optimizer


def _in_ddp(model: nn.Module, ranks: Ranks) -> DistributedDataParallel:
    """The model in DDP; a process that runs alone becomes a group of one."""
    on_gpu = ranks.device.type == "cuda"
    if not dist.is_initialized():
        dist.init_process_group("nccl" if on_gpu else "gloo", store=dist.HashStore(), rank=0, world_size=1)
    return DistributedDataParallel(model, device_ids=[ranks.local_rank] if on_gpu else None)
