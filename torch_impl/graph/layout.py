"""How a batch lies in one row of bytes: any nesting of dicts, lists and tuples of tensors or arrays.

The layout is taken from one example. Every later batch must match it exactly: keys, lengths, shapes,
dtypes. A shape that would merely broadcast is refused, since a copy into fixed memory would accept it in
silence. Must not: touch a device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from spec.errors import RuleError

ALIGN_BYTES = 256

_TORCH_DTYPES = {
    np.dtype(name): getattr(torch, name)
    for name in (
        *("float16", "float32", "float64", "complex64", "complex128", "bool"),
        *("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    )
}


@dataclass(frozen=True)
class Leaf:
    """One tensor of a batch and where its bytes lie in the row."""

    path: str
    """Such as `images` or `pair[1].labels`."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int

    @property
    def num_bytes(self) -> int:
        """Its bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def view(self, row: Tensor) -> Tensor:
        """Its part of a row of bytes, as what it is."""
        return row[self.start : self.start + self.num_bytes].view(self.dtype).view(self.shape)


class BatchLayout:
    """The structure of a batch and the place of each leaf."""

    def __init__(self, example: Any) -> None:
        self.leaves: list[Leaf] = []
        end = 0
        for path, value in _walk(example, ""):
            shape, dtype = _kind(value, path)
            leaf = Leaf(path, shape, dtype, end)
            self.leaves.append(leaf)
            end += -(-leaf.num_bytes // ALIGN_BYTES) * ALIGN_BYTES
        if not self.leaves:
            raise RuleError("A batch has tensors.", f"none in {type(example).__name__}")
        self.row_bytes = max(end, ALIGN_BYTES)
        self._structure = _map(lambda leaf: None, example)

    def misfit(self, batch: Any) -> str | None:
        """What is wrong with a batch, in words; None for nothing."""
        values: list[Any] = []
        if not _collect(self._structure, batch, values):
            return f"structure {_describe(batch)}, expected {_describe(self._structure)}"
        for leaf, value in zip(self.leaves, values, strict=True):
            shape, dtype = _kind(value, leaf.path)
            if (shape, dtype) != (leaf.shape, leaf.dtype):
                return f"{leaf.path} is {dtype} {shape}, expected {leaf.dtype} {leaf.shape}"
        return None

    def has_shapes_of(self, batch: Any) -> bool:
        """Whether a batch has the structure and shapes, dtypes aside; for choosing among layouts."""
        values: list[Any] = []
        return _collect(self._structure, batch, values) and all(
            getattr(value, "shape", None) == leaf.shape
            for leaf, value in zip(self.leaves, values, strict=True)
        )

    def check_other(self, batch: Any) -> None:
        """Makes sure that a batch differs from this layout in its shapes alone, and could not pass for one.

        Raises:
          RuleError: the nesting, a dtype or a number of dimensions is another, or a shape broadcasts to this
            layout's, so that it may be a mistake that nobody would see.
        """
        for leaf, value in zip(self.leaves, self.collect(batch), strict=True):
            shape, dtype = _kind(value, leaf.path)
            if dtype != leaf.dtype or len(shape) != len(leaf.shape):
                self.refuse(batch)
            if shape != leaf.shape and all(a in (1, b) for a, b in zip(shape, leaf.shape, strict=True)):
                self.refuse(batch)

    def refuse(self, batch: Any) -> NoReturn:
        """Says what is wrong with a batch."""
        raise RuleError(
            "A batch has exactly the structure, shapes and dtypes that were captured.",
            self.misfit(batch) or "",
            "pad it, or declare its shape as a bucket; nothing is broadcast",
        )

    def collect(self, batch: Any) -> list[Any]:
        """The leaves of a batch in order, their shapes and dtypes not yet looked at."""
        values: list[Any] = []
        if not _collect(self._structure, batch, values):
            self.refuse(batch)
        return values

    def unflatten(self, row: Tensor) -> Any:
        """A batch of the captured structure whose tensors are views of a row of bytes."""
        views = iter([leaf.view(row) for leaf in self.leaves])
        return _map(lambda leaf: next(views), self._structure)

    def to_device(self, batch: Any, device: torch.device) -> Any:
        """A batch of this nesting, of any shapes, as tensors of a device."""
        values = iter([torch.as_tensor(value, device=device) for value in self.collect(batch)])
        return _map(lambda leaf: next(values), self._structure)


class RowWriter:
    """Writes batches of one layout into one row of bytes on the host, a microsecond a leaf."""

    def __init__(self, layout: BatchLayout, row: Tensor) -> None:
        self._layout = layout
        self._targets = [_Target(leaf, row) for leaf in layout.leaves]

    def write(self, batch: Any) -> None:
        """Checks a batch and writes it.

        Raises:
          RuleError: it does not fit, or lies on a device. What was in the row may then be lost.
        """
        for target, value in zip(self._targets, self._layout.collect(batch), strict=True):
            if type(value) is np.ndarray:
                if target.array is None or value.shape != target.shape or value.dtype != target.array.dtype:
                    self._layout.refuse(batch)
                target.array[...] = value
            elif not isinstance(value, Tensor) or value.shape != target.shape or value.dtype != target.dtype:
                self._layout.refuse(batch)
            else:
                if value.device.type != "cpu":
                    raise RuleError(
                        "A ring in host memory takes batches from the host.",
                        f"a tensor on {value.device}",
                        "hand over host tensors, or ask for staged inputs",
                    )
                target.tensor.copy_(value)


class _Target:
    """Where one leaf goes, with what is compared at every write."""

    def __init__(self, leaf: Leaf, row: Tensor) -> None:
        self.tensor = leaf.view(row)
        self.shape, self.dtype = leaf.shape, leaf.dtype
        self.array = self.tensor.numpy() if leaf.dtype in _TORCH_DTYPES.values() else None


def _walk(value: Any, path: str) -> list[tuple[str, Any]]:
    """(path, leaf) in a fixed order: dicts by sorted key."""
    if isinstance(value, dict):
        return [x for k in sorted(value) for x in _walk(value[k], f"{path}.{k}" if path else str(k))]
    if isinstance(value, list | tuple):
        return [x for i, item in enumerate(value) for x in _walk(item, f"{path}[{i}]")]
    return [(path or "batch", value)]


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    """The same nesting with every leaf replaced, visited in the order of `_walk`."""
    if isinstance(value, dict):
        return {k: _map(function, value[k]) for k in sorted(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map(function, item) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_map(function, item) for item in value)
    return function(value)


def _collect(structure: Any, value: Any, leaves: list[Any]) -> bool:
    """Adds the leaves of `value` in the order of `_walk`; False where the nesting is another."""
    if structure is None:
        leaves.append(value)
        return not isinstance(value, dict | list | tuple)
    if isinstance(structure, dict):
        if not isinstance(value, dict) or len(value) != len(structure):
            return False
        return all(k in value and _collect(part, value[k], leaves) for k, part in structure.items())
    if type(value) is not type(structure) or len(value) != len(structure):
        return False
    return all(_collect(part, item, leaves) for part, item in zip(structure, value, strict=True))


def _kind(value: Any, path: str) -> tuple[tuple[int, ...], torch.dtype]:
    if not isinstance(value, Tensor | np.ndarray):
        raise RuleError("A batch's leaves are tensors or arrays.", f"{path} is {type(value).__name__}")
    return tuple(value.shape), _torch_dtype(value.dtype)


def _torch_dtype(dtype: Any) -> torch.dtype:
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in _TORCH_DTYPES:
        raise RuleError("An array of a batch has a dtype that torch knows.", str(dtype), "convert it first")
    return _TORCH_DTYPES[dtype]


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_describe(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_describe, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return "."
