"""What an object keeps from one call to the next, wherever in it that lies: numbers on the host, and tensors.

Looked into are its attributes, dictionaries, lists, and objects in them; not what a closure or an iterator
holds. A graph reads tensors on the device anew in every replay, and has the numbers as they were when it was
captured. Must not: know what they mean.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

_NUMBERS = bool | int | float | complex | str | None
_CLOSED = type | FunctionType | BuiltinFunctionType | MethodType | ModuleType | nn.Module


@dataclass(frozen=True)
class Cell:
    """A place in an object that holds a number, a tensor, or what holds them."""

    path: str
    """`state/fc.weight/step`"""
    inside: dict[Any, Any] | list[Any]
    key: Any

    @property
    def value(self) -> Any:
        """What it holds now; None where the place is gone."""
        try:
            return self.inside[self.key]
        except LookupError:
            return None

    def put(self, value: Any) -> None:
        """Has it hold a value, where a list has not become shorter."""
        with contextlib.suppress(IndexError):
            self.inside[self.key] = value


def cells(root: object, names: Mapping[int, str]) -> Iterator[Cell]:
    """All places of an object, but for those of parameters; what holds others stands before them.

    Args:
      names: of objects that serve as keys, by their id.
    """
    seen: set[int] = set()

    def of(value: Any, path: str) -> Iterator[Cell]:
        if id(value) in seen:
            return
        seen.add(id(value))
        inside = value if isinstance(value, dict | list) else vars(value)
        for key in list(inside) if isinstance(inside, dict) else range(len(inside)):
            held, name = inside[key], f"{path}{names.get(id(key), key)}"
            if isinstance(held, nn.Parameter):
                continue
            if isinstance(held, Tensor) or _is_number(held):
                yield Cell(name, inside, key)
            elif _is_open(held):
                yield Cell(name, inside, key)
                yield from of(held, f"{name}/")

    yield from of(root, "")


def tensors(root: object, names: Mapping[int, str]) -> dict[str, Cell]:
    """The places that hold tensors, by path."""
    return {cell.path: cell for cell in cells(root, names) if isinstance(cell.value, Tensor)}


class Held:
    """An object's places as they are now; numbers of tensors on its device are for others to save.

    Args:
      device: tensors elsewhere are the host's.
    """

    def __init__(self, root: object, device: torch.device, names: Mapping[int, str]) -> None:
        self._root, self._names = root, names
        self._cells = [(cell, cell.value) for cell in cells(root, names)]
        self._hosts = {
            cell.path: value.clone()
            for cell, value in self._cells
            if isinstance(value, Tensor) and value.device.type != device.type
        }

    @torch.no_grad()
    def put_back(self) -> None:
        """Every place holds again what it held, the host's tensors with their values."""
        for cell, value in self._cells:
            if cell.value is not value:
                cell.put(value)
            if cell.path in self._hosts:
                value.copy_(self._hosts[cell.path])

    def changed(self) -> list[str]:
        """The host's numbers that are others now: `t: 1 -> 2`."""
        now = {cell.path: cell.value for cell in cells(self._root, self._names)}
        found = []
        for cell, value in self._cells:
            before, after = self._hosts.get(cell.path, value), now.get(cell.path)
            if isinstance(before, Tensor):
                # Those on the device are no numbers of the host's.
                is_other = cell.path in self._hosts and not _equal(after, before)
            else:
                is_other = _is_number(before) and _is_number(after) and after != before
            if is_other:
                found.append(f"{cell.path}: {_told(before)} -> {_told(after)}")
        return found


def _equal(one: object, other: Tensor) -> bool:
    return isinstance(one, Tensor) and torch.equal(one, other)


def _is_number(value: object) -> bool:
    return isinstance(value, _NUMBERS) or _is_of_numbers(value)


def _is_open(value: object) -> bool:
    return isinstance(value, dict | list) or (hasattr(value, "__dict__") and not isinstance(value, _CLOSED))


def _is_of_numbers(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, _NUMBERS) for one in value)


def _told(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    return f"{value.item():.6g}" if value.numel() == 1 else f"a tensor {tuple(value.shape)}"
