"""Sees which operations between positions a model makes over one position alone.

There a softmax is 1 whatever its scores are, a recurrent layer has no state to go on from, and one tap of a
kernel meets anything: what the model does with positions reaches neither its loss nor its gradients.

Evidence is of two strengths. Attention, recurrent functions and wide kernels work between positions by their
nature, so one of them that never had two is enough, whatever the data look like. A softmax may be over
anything, so over one it counts only where nothing else tells of several positions: no function between
positions and no softmax of its name had more, and no array of a batch has more along its second axis. A gate
over one expert, in a model of single tokens, still looks as attention over one position does.

Calls inside of torch's own functions are not seen, nor a recurrence or attention that a user wrote without
these functions. Must not: change a call. JAX has no counterpart.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_SOFTMAX: dict[Any, str] = {
    **dict.fromkeys((F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax), "softmax"),
    **dict.fromkeys(
        (F.log_softmax, torch.log_softmax, Tensor.log_softmax, torch.special.log_softmax), "log_softmax"
    ),
}
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_CELLS = tuple(f"{name}_cell" for name in _RECURRENT)
_BETWEEN: dict[Any, str] = {
    F.scaled_dot_product_attention: "scaled_dot_product_attention",
    F.multi_head_attention_forward: "multi_head_attention_forward",
    torch.conv1d: "conv1d",
    **{getattr(torch, name): name for name in (*_RECURRENT, *_CELLS)},
}
"""By function: a compiler that traces a model cannot compare the names that functions tell."""


class OverOne(TorchFunctionMode):
    """While it is entered, every call of a function of torch's passes here."""

    def __init__(self) -> None:
        super().__init__()
        self._longest: dict[str, int] = {}
        """Of functions between positions: how many positions any call of each had at most."""
        self._widest: dict[str, int] = {}
        """The same of softmaxes, over whatever they are."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Makes the call as it is."""
        kwargs = kwargs or {}
        if func in _BETWEEN:
            name = _BETWEEN[func]
            _note(self._longest, name, _positions(name, args, kwargs))
        if func in _SOFTMAX:
            _note(self._widest, _SOFTMAX[func], _width(args, kwargs))
        return func(*args, **kwargs)

    def found(self, batch: Iterable[tuple[int, ...]]) -> tuple[str, ...]:
        """Names of the functions that worked over one position and never over more.

        Args:
          batch: shapes of the arrays that the model was given.
        """
        strong = tuple(name for name, most in self._longest.items() if most == 1)
        several = any(len(shape) > 1 and shape[1] > 1 for shape in batch)
        if several or len(strong) < len(self._longest):
            return strong
        return strong + tuple(name for name, most in self._widest.items() if most == 1)


def _note(most: dict[str, int], name: str, count: int | None) -> None:
    if count is not None:
        most[name] = max(count, most.get(name, 0))


def _width(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """How many a softmax is over; None where no axis is named."""
    dim = _given(args, kwargs, 1, "dim")
    shape = _given(args, kwargs, 0, "input").shape
    return shape[dim] if isinstance(dim, int) and shape else None


def _positions(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Over how many positions a call goes; None where it is none between positions after all."""
    if name == "scaled_dot_product_attention":
        return _given(args, kwargs, 1, "key").shape[-2]
    if name == "multi_head_attention_forward":
        # Positions come first there, whatever the module's `batch_first` is; a key may be added to them.
        added = (_given(args, kwargs, 7, "bias_k") is not None) + bool(
            _given(args, kwargs, 9, "add_zero_attn")
        )
        return _given(args, kwargs, 1, "key").shape[0] + added
    if name == "conv1d":
        weight = _given(args, kwargs, 1, "weight")
        return _filled(_given(args, kwargs, 0, "input")) if weight.shape[-1] > 1 else None
    if name in _RECURRENT:
        # Packed sequences come with how many rows each position has, before the state.
        packed = not isinstance(args[3], bool)
        length = args[1].shape[0] if packed else args[0].shape[1 if args[8] and args[0].ndim > 2 else 0]
        return length + _holds(args[2 if packed else 1])
    return 1 + _holds(_given(args, kwargs, 1, "hx"))


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str) -> Any:
    return args[place] if place < len(args) else kwargs.get(name)


def _holds(state: Tensor | Iterable[Tensor]) -> bool:
    """Whether a layer goes on from something: then a position was before, or a state is learned."""
    tensors = [state] if isinstance(state, Tensor) else state
    if torch.compiler.is_compiling():  # A value that is looked at breaks a user's whole graph.
        return True
    try:
        return any(bool(one.detach().any()) for one in tensors)
    except RuntimeError:  # Under a transformation of torch.func nobody can look.
        return True


def _filled(signal: Tensor) -> int:
    """Positions along the last axis that hold anything: a causal kernel's row is padded with zeros before."""
    length = signal.shape[-1]
    if length == 1 or torch.compiler.is_compiling():
        return length
    try:
        return int(signal.detach().reshape(-1, length).any(0).sum())
    except RuntimeError:
        return length
