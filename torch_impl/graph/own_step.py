"""OwnStep: a user's module, loss and torch optimizer as a step that can be captured. Slower than flat
buffers.

    own = OwnStep(module, loss, torch.optim.Adam(module.parameters(), lr=1e-3), max_norm=1.0)
    own(batch)                          # the first step runs eagerly: optimizers make their state in it
    whole = WholeStep(own.forms(), own, device)
    whole.capture(next_batch)

Any torch optimizer that can be captured (it has `capturable`, or a fused kernel that reads the learning
rate on the device). Meaning: gradients of the loss sum, divided by the count over all ranks, clipped as
`clip_grad_norm_` does, and an update that is refused on the device where loss or norm is not finite. Must
not: let a number of the host's that may change be captured unseen; `audit` compares them all.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from spec.errors import RuleError
from torch_impl.graph.forms import Forms
from torch_impl.graph.settings import Settings

Loss = Callable[[nn.Module, Any], tuple[Tensor, Tensor]]
"""(module, batch) -> (sum of losses, count), both 0-dim."""

METRICS = ("loss", "grad_norm", "skipped")


class OwnStep:
    """The step and all that it changes; a `State` of `WholeStep`.

    Args:
      module: on its device.
      optimizer: over the module's parameters; made fit for capture here, in place.
      max_norm: gradients are clipped to it; None for no clipping.
      all_reduce: sums a flat tensor over all ranks; None for one process.
      guard: refuse updates that are not finite, at the price of a second copy of all state.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer,
        max_norm: float | None = None,
        all_reduce: Callable[[Tensor], None] | None = None,
        guard: bool = True,
    ) -> None:
        self.module, self._loss, self._optimizer = module, loss, optimizer
        self._max_norm, self._all_reduce, self._guard = max_norm, all_reduce, guard
        self._trained = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self._device = self._trained[0].device
        _refuse_half_precision(module)
        self._settings = Settings(optimizer, self._device)
        self._settings.make_capturable(every=True)
        self._settings.record()
        self.metrics = torch.zeros(len(METRICS), device=self._device)
        self.skipped = torch.zeros((), dtype=torch.int64, device=self._device)
        self._before: list[Tensor] = []
        self._is_first = not optimizer.state

    def __call__(self, batch: Any) -> None:
        """One step on a batch on the device."""
        self._step(batch, self._all_reduce)

    def forms(self, captured_all_reduce: Callable[[Tensor], None] | None = None) -> Forms:
        """For `WholeStep`; to be taken after the first step.

        Args:
          captured_all_reduce: through the communicator that the graph owns; needed with several ranks.

        Raises:
          RuleError: a parameter of the optimizer has had no gradient, so that a graph would never update it.
        """
        names = {id(p): name for name, p in self.module.named_parameters()}
        bare = [names.get(id(p), "a parameter") for p in self._trained if p.grad is None]
        if bare:
            raise RuleError(
                "Every parameter of the optimizer gets a gradient.",
                f"none for {', '.join(bare[:4])}",
                "make a step before capture; leave what the loss does not use out of the optimizer",
            )
        self._settings.record()
        if self._all_reduce is None:
            return Forms.alone(self)
        assert captured_all_reduce is not None, "several ranks reduce inside the graph too"
        return Forms(
            captured=lambda batch: self._step(batch, captured_all_reduce),
            local=lambda batch: self._step(batch, None),
            eager=self,
        )

    def lasting(self) -> list[Tensor]:
        """Parameters, optimizer state, the module's buffers, and the count of refused updates."""
        return [*self._updated(), *self.module.buffers(), self.skipped]

    def pointers(self) -> dict[str, Tensor]:
        """Everything above and the gradients, by name."""
        found: dict[str, Tensor] = {f"param/{name}": p for name, p in self.module.named_parameters()}
        found |= {f"buffer/{name}": b for name, b in self.module.named_buffers()}
        found |= {f"grad/{n}": p.grad for n, p in self.module.named_parameters() if p.grad is not None}
        for i, p in enumerate(self._trained):
            state = self._optimizer.state.get(p, {})
            found |= {f"state/{i}/{k}": v for k, v in state.items() if isinstance(v, Tensor)}
        return found | {f"lr/{i}": rate for i, rate in enumerate(self._settings.rates())}

    def audit(self) -> None:
        """See `Settings.audit`."""
        self._settings.audit()

    def _step(self, batch: Any, all_reduce: Callable[[Tensor], None] | None) -> None:
        torch._foreach_zero_([p.grad for p in self._trained if p.grad is not None] or [self.metrics])
        kept = self._keep() if self._guard else []
        loss_sum, count = self._loss(self.module, batch)
        loss_sum.backward()
        with torch.no_grad():
            loss, norm = self._reduced(loss_sum, count, all_reduce)
            finite = torch.isfinite(loss) & torch.isfinite(norm)
            if self._max_norm is not None:
                torch.nn.utils.clip_grads_with_norm_(self._trained, self._max_norm, norm)
            # The first step makes the optimizer's state, so there is none to put back; it runs eagerly, and
            # the host may ask.
            refused = self._is_first and self._guard and not bool(finite)
            if not refused:
                self._optimizer.step()
            if refused or not self._is_first:
                for tensor, before in zip(self._kept(), kept, strict=self._guard):
                    tensor.copy_(torch.where(finite, tensor, before))
            self._is_first &= refused
            self.skipped.add_(~finite)
            self.metrics.copy_(torch.stack([loss, norm.float(), self.skipped.float()]))

    def _reduced(
        self, loss_sum: Tensor, count: Tensor, all_reduce: Callable[[Tensor], None] | None
    ) -> tuple[Tensor, Tensor]:
        """Loss and gradient norm over all ranks; gradients are summed and divided by the count in place."""
        grads = [p.grad for p in self._trained if p.grad is not None]
        totals = torch.stack([loss_sum.detach().float(), count.float()])
        if all_reduce is not None:
            _reduce([*grads, totals], all_reduce)
        torch._foreach_div_(grads, totals[1])
        return totals[0] / totals[1], torch.nn.utils.get_total_norm(grads)

    def _updated(self) -> list[Tensor]:
        states = (self._optimizer.state.get(p, {}) for p in self._trained)
        made = [v for state in states for _, v in sorted(state.items()) if isinstance(v, Tensor)]
        return [*self._trained, *made]

    def _kept(self) -> list[Tensor]:
        return [*self._updated(), *self.module.buffers()]

    @torch.no_grad()
    def _keep(self) -> list[Tensor]:
        """Copies of what a refused update puts back, always in the same memory."""
        now = self._kept()
        if len(self._before) != len(now):
            self._before = [torch.empty_like(tensor) for tensor in now]
        for before, tensor in zip(self._before, now, strict=True):
            before.copy_(tensor)
        return self._before


def _refuse_half_precision(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if parameter.dtype == torch.float16:
            raise RuleError(
                "float16 gradients need loss scaling, which is not here.",
                f"{name} is float16",
                "build the module in bfloat16 or float32",
            )


def _reduce(tensors: list[Tensor], all_reduce: Callable[[Tensor], None]) -> None:
    """Sums tensors over ranks as one flat buffer."""
    # At least float32; float64 stays what it is, so that several ranks compute what one does.
    dtype = torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32
    flat = torch.cat([tensor.to(dtype).flatten() for tensor in tensors])
    all_reduce(flat)
    parts = flat.split([tensor.numel() for tensor in tensors])
    torch._foreach_copy_(tensors, [p.view(t.shape) for p, t in zip(parts, tensors, strict=True)])
