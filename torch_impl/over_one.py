"""Sees which operations between positions a model makes over one position alone.

There a softmax is 1 whatever its scores are, and a recurrent layer has no state to go on from: what the model
does with positions reaches neither its loss nor its gradients. Not seen are calls inside of torch's own
functions, recurrent layers over packed sequences, a recurrence that a user wrote as a loop, be it over an
LSTMCell or another cell, and a softmax by other names: `torch.special.softmax`, `log_softmax`, or exp and
logsumexp. A softmax over an axis of 1 that is none of positions, such as a gate's over a single feature, is
taken for one between positions: with one position the shapes of the two are the same. Must not: change a
call. JAX has no counterpart.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


class OverOne(TorchFunctionMode):
    """While it is entered, every call of a function of torch's passes here."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        """Names of the functions that were given one position, each once."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Makes the call as it is."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name not in self.found and _positions(func, name, args, kwargs) == 1:
            self.found.append(name)
        return func(*args, **kwargs)


def _positions(
    func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> int | None:
    """Over how many positions a call goes; None where it is none between positions."""

    def given(place: int, name: str) -> Any:
        return args[place] if place < len(args) else kwargs.get(name)

    if func in _SOFTMAX:
        dim = given(1, "dim")
        return None if dim is None else given(0, "input").shape[dim]
    if func is F.scaled_dot_product_attention:
        return given(1, "key").shape[-2]
    if func is F.multi_head_attention_forward:
        # Positions come first there, whatever the module's `batch_first` is.
        return given(1, "key").shape[0]
    # Packed sequences come with their lengths, and another argument in this place.
    if name in _RECURRENT and isinstance(args[3], bool):
        batch_first = args[8]
        return args[0].shape[1 if batch_first else 0]
    return None
