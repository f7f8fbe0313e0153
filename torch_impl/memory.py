"""Arena: the memory of a run, laid out flat once, at addresses that never move.

One buffer each for master weights, the first and second moment, and the sums of a step; in a profile whose
compute dtype differs, one more for the working copy. The model's parameters are views of the working copy, so
refreshing it is one copy, clipping and AdamW run over flat slices, and one all-reduce carries everything.

    sums     [ decayed gradients | other gradients | loss_sum, count ]
    m, v     [ decayed           | others          ]
    master   [ decayed           | others          | frozen ]
    working  the same, in the compute dtype; `master` itself where that is the same dtype

Every parameter starts at a multiple of 256 bytes in every buffer; what lies between stays zero. Must not:
compute anything of the step. Counterpart: `jax_impl/memory.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from spec.errors import RuleError
from spec.params import ParamSpec
from spec.precision import Profile

ALIGN_BYTES = 256

METRICS = ("loss", "grad_norm", "clip", "lr", "skipped", "tokens")
"""What a step leaves in `metrics`, in this order; `tokens` counts this rank's rows, all else is global."""


@dataclass(frozen=True)
class Slot:
    """Where one parameter lies: elements [start, start + row.size) of every flat buffer."""

    row: ParamSpec
    start: int
    trainable: bool

    def view(self, flat: Tensor) -> Tensor:
        """The parameter's part of a flat buffer, in its own shape."""
        return flat[self.start : self.start + self.row.size].view(self.row.shape)


class Arena:
    """All state of a run.

    Args:
      module: its parameters become views of the arena and keep their values, except on the meta device, where
        they have none; its buffers move to the device. What is tied stays tied and counts once.
      table: rows of known parameters; one without a row decays when it has two or more dimensions.
      profile: the dtype of each buffer.
      device: where all of it lies.
    """

    def __init__(
        self, module: nn.Module, table: Iterable[ParamSpec], profile: Profile, device: torch.device
    ) -> None:
        master, compute, accumulate, moments = (
            getattr(torch, name)
            for name in (profile.master, profile.compute, profile.accumulate, profile.moments)
        )
        align = ALIGN_BYTES // min(dtype.itemsize for dtype in (master, compute, accumulate, moments))
        self.module, self.device = module, device
        self.slots, ends = _lay_out(module, parameter_rows(module, table), align)
        """One for each parameter, in the module's order."""
        self.num_decayed, self.num_trainable, num_all = ends

        def zeros(size: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        self.master = zeros(num_all, master)
        self.working = self.master if compute == master else zeros(num_all, compute)
        self.m, self.v = zeros(self.num_trainable, moments), zeros(self.num_trainable, moments)
        self.sums = zeros(self.num_trainable + align, accumulate)
        self.metrics = zeros(len(METRICS), accumulate)
        self.rank_tokens = zeros(1, accumulate)
        self.applied, self.skipped = zeros(1, torch.int64), zeros(1, torch.int64)
        """Updates made, and updates refused because a number was not finite."""

        self.ties = tied_names(module)
        parameters = _adopt_parameters(module, self.slots, self.master, self.working)
        self.refresh()
        self.trainable = [p for p, slot in zip(parameters, self.slots, strict=True) if slot.trainable]
        self.grads = [slot.view(self.sums) for slot in self.slots if slot.trainable]
        """One view of `sums` for each of `trainable`."""
        self.buffers = _adopt_buffers(module, master, device)
        self.buffers_before = {name: buffer.clone() for name, buffer in self.buffers.items()}
        """The model's own buffers as they were before the step, put back when it refuses an update."""

    @property
    def grad(self) -> Tensor:
        """All gradients, flat."""
        return self.sums[: self.num_trainable]

    @property
    def totals(self) -> Tensor:
        """loss_sum and count, (2,): the end of `sums`, so that they travel with the gradients."""
        return self.sums[self.num_trainable : self.num_trainable + 2]

    def groups(self) -> list[tuple[bool, slice]]:
        """(decayed, slice of the flat buffers) for the parameters that decay and for those that do not."""
        cuts = [(True, slice(0, self.num_decayed)), (False, slice(self.num_decayed, self.num_trainable))]
        return [(decayed, cut) for decayed, cut in cuts if cut.start < cut.stop]

    def tensors(self, phase: str) -> dict[str, Tensor]:
        """Tensors by canonical name: live ones of `param`, `m`, `v` or `buffer`, and what the last step left
        of `grad`; `clipped` is made from it."""
        if phase == "buffer":
            return dict(self.buffers)
        if phase == "param":
            return {slot.row.name: slot.view(self.master) for slot in self.slots}
        if phase == "clipped":
            flat = self.grad * self.metrics[METRICS.index("clip")]
        else:
            flat = {"grad": self.sums, "m": self.m, "v": self.v}[phase]
        return {slot.row.name: slot.view(flat) for slot in self.slots if slot.trainable}

    def describe(self) -> list[dict[str, Any]]:
        """What each parameter is, for the manifest; see `describe_parameter`."""
        return [
            describe_parameter(slot.row.name, slot.view(self.master), slot.row.decayed, slot.trainable)
            for slot in self.slots
        ]

    def refresh(self) -> None:
        """Rounds the master weights to the working copy, once; nothing to do where they are one."""
        if self.working is not self.master:
            self.working.copy_(self.master)

    def lasting(self) -> list[Tensor]:
        """Everything that one step leaves for the next."""
        working = [] if self.working is self.master else [self.working]
        return [self.master, self.m, self.v, self.applied, self.skipped, *working, *self.buffers.values()]


def describe_parameter(name: str, stored: Tensor, decayed: bool, trainable: bool) -> dict[str, Any]:
    """One parameter for the manifest: name, shape, dtype (as stored), decayed, trainable."""
    return {
        "name": name,
        "shape": list(stored.shape),
        "dtype": str(stored.dtype).removeprefix("torch."),
        "decayed": decayed and trainable,
        "trainable": trainable,
    }


def tied_names(module: nn.Module) -> list[list[str]]:
    """Groups of names that stand for one parameter, the canonical name first."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def parameter_rows(module: nn.Module, table: Iterable[ParamSpec]) -> dict[str, ParamSpec]:
    """The row of each parameter of the module, tied ones once; made up where the table has none that fits."""
    known, rows = {row.name: row for row in table}, {}
    for name, parameter in module.named_parameters():
        if not parameter.dtype.is_floating_point:
            raise RuleError("Parameters are floating-point numbers.", f"{name} is {parameter.dtype}")
        if parameter.dtype == torch.float16:
            mend = "build the module in float32 or bfloat16; the profile bf16 computes in bfloat16"
            raise RuleError("float16 needs loss scaling, which is not here.", f"{name} is float16", mend)
        shape = tuple(parameter.shape)
        given = ParamSpec(name=name, shape=shape, init="given", decayed=parameter.ndim >= 2)
        rows[name] = known[name] if name in known and known[name].shape == shape else given
    if not rows:
        raise RuleError("A model has parameters.", f"{type(module).__name__} has none")
    return rows


def _lay_out(module: nn.Module, rows: dict[str, ParamSpec], align: int) -> tuple[tuple[Slot, ...], list[int]]:
    """The slots, in the order of `rows`, and where decayed, other and frozen parameters end."""
    trainable = {name: parameter.requires_grad for name, parameter in module.named_parameters()}
    groups = (
        [name for name, row in rows.items() if trainable[name] and row.decayed],
        [name for name, row in rows.items() if trainable[name] and not row.decayed],
        [name for name in rows if not trainable[name]],
    )
    starts, ends, end = {}, [], 0
    for group in groups:
        for name in group:
            starts[name] = end
            end += -(-rows[name].size // align) * align
        ends.append(end)
    return tuple(Slot(row, starts[name], trainable[name]) for name, row in rows.items()), ends


def _adopt_parameters(
    module: nn.Module, slots: tuple[Slot, ...], master: Tensor, working: Tensor
) -> list[nn.Parameter]:
    """Puts views of the working copy where the module's parameters were, and their values into the master."""
    adopted: dict[int, nn.Parameter] = {}
    for slot, original in zip(slots, module.parameters(), strict=True):
        if not original.is_meta:
            slot.view(master).copy_(original.detach())
        adopted[id(original)] = nn.Parameter(slot.view(working), requires_grad=slot.trainable)
    for name, original in list(module.named_parameters(remove_duplicate=False)):
        owner, _, leaf = name.rpartition(".")
        module.get_submodule(owner).register_parameter(leaf, adopted[id(original)])
    return list(adopted.values())


def _adopt_buffers(module: nn.Module, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    """Moves the module's buffers to the device, those of floating-point numbers in `dtype`."""
    for name, buffer in list(module.named_buffers(remove_duplicate=False)):
        owner, _, leaf = name.rpartition(".")
        moved = buffer.to(device, dtype if buffer.dtype.is_floating_point else buffer.dtype, copy=True)
        setattr(module.get_submodule(owner), leaf, moved)
    return dict(module.named_buffers())
