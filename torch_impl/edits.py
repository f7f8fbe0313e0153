"""Edits inside a model: a `Side` whose calls are changed on their way to PyTorch.

A mode around build and loss sees every function of torch's that the model calls, a user's model too, and
gives it another argument, or does something else instead. Calls inside of torch's own functions are not seen:
fused attention is one call. Must not: be there where no edit asks for it. Counterpart: `jax_impl/edits.py`.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from spec.edits import CATALOGUE, Edit
from torch_impl.edited_calls import CHANGES, Call
from torch_impl.models import Side

Seen = dict[str, list[str]]
"""What stood where each edit acted: one entry for each different value, in words."""


def edited(side: Side, edits: Iterable[Edit], seen: Seen) -> Side:
    """The side with its model edited; the same side where no edit is of models.

    Args:
      seen: is filled as the edits act; an edit that met nothing is not in it.
    """
    values = {edit.name: edit.value for edit in edits if CATALOGUE[edit.name].reach == "model"}
    # In their own order, so that what replaces a call comes after what alters its arguments.
    chosen = {name: values[name] for name in CHANGES if name in values}
    if not chosen:
        return side

    def build() -> nn.Module:
        with _Calls(chosen, seen):
            return side.build()

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        with _Calls(chosen, seen):
            return side.loss(model, batch)

    return replace(side, build=build, loss=loss)


class _Calls(TorchFunctionMode):
    """Every call of a function of torch's passes here."""

    def __init__(self, values: dict[str, float], seen: Seen) -> None:
        super().__init__()
        self._values, self._seen = values, seen

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Makes the call, changed by every edit that is about it."""
        call = Call(func, args, dict(kwargs or {}))
        for name, value in self._values.items():
            was = CHANGES[name](call, value)
            if was is not None and was not in self._seen.setdefault(name, []):
                self._seen[name].append(was)
        result = call.func(*call.args, **call.kwargs)
        for then in call.then:
            result = then(result)
        return result
