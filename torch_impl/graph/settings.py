"""An optimizer's settings as a graph has them: learning rates that are read on the device, and numbers.

Whoever sets a rate goes on doing so in the words that they have for it, a number or a tensor of their own;
the device is told before a launch. Must not: let a setting change unseen that the graph has as it was.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spec.errors import RuleError, few
from torch_impl.graph.held import same

_NO_SETTINGS = ("params", "param_names", "initial_lr")
"""Of a group; schedules move the last one."""


@dataclass
class _Rate:
    """A learning rate on the device."""

    tensor: Tensor
    host: Tensor | None = None
    """The user's own tensor on the host, where they gave one: what they write there is taken over."""
    seen: float = math.nan
    """What it held when it was."""

    def take(self, given: Any) -> None:
        """Has the device hold the rate that was set."""
        if given is not self.tensor:
            self.host, self.seen = (given, math.nan) if isinstance(given, Tensor) else (None, math.nan)
            if self.host is None:
                self.tensor.fill_(given)
        # Schedules fill the tensor on the device, so that the host's counts where it is another number now.
        if self.host is not None and (now := float(self.host)) != self.seen:
            self.tensor.fill_(now)
            self.seen = now


class Settings:
    """Of the groups of an optimizer.

    Args:
      device: where its parameters are.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self._optimizer, self._device = optimizer, device
        self._rates: list[_Rate | None] = []
        """One a group, None where the rate is no tensor on the device."""
        self._recorded: list[dict[str, Any]] = []
        self._state: Any = None

    def make_capturable(self, every: bool, dtype: torch.dtype = torch.float32) -> None:
        """Has the optimizer keep counters and rates on the device, where it knows how to.

        Args:
          every: refuse one that does not know, and read the rate of every group on the device.
          dtype: of rates that were numbers.

        Raises:
          RuleError: it keeps numbers on the host that change from step to step.
        """
        groups = self._optimizer.param_groups
        for group in groups if self._device.type == "cuda" else ():
            if "capturable" in group:
                group["capturable"] = True
            elif every and "fused" in group:
                group["fused"] = True
            elif every:
                raise RuleError(
                    "A graph holds an optimizer whose numbers live on the device.",
                    f"{type(self._optimizer).__name__} has neither `capturable` nor a fused kernel",
                    "take one that has, such as AdamW or SGD",
                )
        # Its first step is not captured, on purpose; torch would warn of that.
        self._optimizer._warned_capturable_if_run_uncaptured = True  # type: ignore[attr-defined]
        self._rates = [
            _Rate(torch.zeros((), dtype=dtype, device=self._device))
            if "lr" in group and (every or "capturable" in group)
            else None
            for group in groups
        ]
        self.take()
        for state in (state for state in self._optimizer.state.values() if isinstance(state, dict)):
            # Checkpoints hold counters where the optimizer of their time had them.
            state |= {k: v.to(self._device) for k, v in state.items() if isinstance(v, Tensor)}

    def rates(self) -> list[Tensor]:
        """The rates that are read on the device."""
        return [rate.tensor for rate in self._rates if rate is not None]

    def take(self) -> None:
        """Takes over rates that were set; a tensor on the device becomes what is read."""
        for group, rate in self._read():
            if self._is_on_device(given := group["lr"]) and given is not rate.tensor:
                rate.tensor, rate.host = given, None
            rate.take(given)
            group["lr"] = rate.tensor

    def record(self) -> None:
        """Takes rates over for the last time before a graph has all settings as they are now."""
        self.take()
        self._recorded = [
            # Only what can be written into is copied, so that the others are compared in no time.
            {k: self._kept(v) for k, v in group.items() if k not in _NO_SETTINGS}
            for group in self._optimizer.param_groups
        ]
        self._state = self._optimizer.state

    def audit(self) -> None:
        """Takes over rates that were set, and makes sure that nothing else has changed since the record.

        To be called before a launch whenever host code may have touched the optimizer.

        Raises:
          RuleError: a number that the graph holds has changed, named.
        """
        for group, rate in self._read():
            # Another tensor on the device is no number to take over: the graph does not read it.
            if not self._is_on_device(given := group.get("lr")) or given is rate.tensor:
                rate.take(given)
                group["lr"] = rate.tensor
        if changed := self._changed():
            raise RuleError(
                "Settings of a captured optimizer stay as they were captured.",
                few(changed),
                "only a learning rate that is a tensor on the device may change (torch.optim: "
                "capturable=True), by a number or by writing into it; otherwise capture anew, or take --mode "
                "torch=eager",
            )

    def _read(self) -> list[tuple[dict[str, Any], _Rate]]:
        groups = zip(self._optimizer.param_groups, self._rates, strict=False)
        return [(group, rate) for group, rate in groups if rate is not None]

    def _is_on_device(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.device == self._device

    def _kept(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value if self._is_on_device(value) else value.detach().clone()
        return copy.deepcopy(value) if isinstance(value, list | dict) else value

    def _changed(self) -> list[str]:
        groups = self._optimizer.param_groups
        if len(groups) != len(self._recorded):
            return [f"groups: {len(self._recorded)} -> {len(groups)}"]
        found = (
            ["state: replaced, as load_state_dict does"] if self._optimizer.state is not self._state else []
        )
        for i, (group, recorded) in enumerate(zip(groups, self._recorded, strict=True)):
            for name in [*recorded, *(n for n in group if n not in recorded and n not in _NO_SETTINGS)]:
                now, before = group.get(name), recorded.get(name)
                if now is not before and (self._is_on_device(before) or not same(now, before)):
                    found.append(f"group {i} {name}: {_told(before)} -> {_told(now)}")
        return found


def _told(value: Any) -> str:
    return f"a tensor of {value.tolist()}" if isinstance(value, Tensor) else str(value)
