"""What an object keeps from one call to the next, wherever in it that lies: numbers on the host, and tensors.

Looked into are attributes, slots, dictionaries, lists, tuples, deques, and objects and modules in them. Left
out are sets, iterators, random generators of its own, and functions and methods with all that they are bound
to or close over: what is kept there shows only in that the same calls do not give the same twice. A graph
reads tensors on the device anew in every replay, and has the numbers as they were when it was captured. Must
not: know what they mean.
"""

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

_NUMBERS = bool | int | float | complex | str | None | np.generic
_CLOSED = type | FunctionType | BuiltinFunctionType | MethodType | ModuleType | Tensor | np.ndarray


class _Slots:
    """An object's slots, as a dictionary of those that hold something."""

    def __init__(self, owner: object, names: list[str]) -> None:
        self._owner, self._names = owner, names

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if hasattr(self._owner, name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self._owner, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._owner, name, value)

    def clear(self) -> None:
        """Empties all of them."""
        for name in list(self):
            delattr(self._owner, name)

    def update(self, content: Mapping[str, Any]) -> None:
        """Fills some of them."""
        for name, value in content.items():
            self[name] = value


_Container = dict[Any, Any] | list[Any] | deque[Any] | _Slots


@dataclass(frozen=True)
class Cell:
    """A place in an object."""

    path: str
    """`state/fc.weight/step`"""
    inside: "_Container | Cell"
    """A cell where it is in a tuple, which can only be replaced: the place of the tuple."""
    key: Any

    @property
    def value(self) -> Any:
        """What it holds now; None where the place is gone."""
        inside: Any = self.inside.value if isinstance(self.inside, Cell) else self.inside
        if isinstance(inside, dict):
            # Brackets would have a defaultdict make what is gone.
            return inside.get(self.key)
        try:
            return inside[self.key]
        except (LookupError, TypeError):
            return None

    def put(self, value: Any) -> None:
        """Has it hold a value, where a list has not become shorter."""
        if self.value is value:
            return
        with contextlib.suppress(IndexError):
            if not isinstance(self.inside, Cell):
                self.inside[self.key] = value
                return
            whole = self.inside.value
            parts = [*whole]
            parts[self.key] = value
            # Named tuples take their fields one by one.
            self.inside.put(getattr(whole, "_make", type(whole))(parts))


def cells(root: object, trained: Mapping[int, str]) -> Iterator[Cell]:
    """All places of an object, but for those of the trained parameters; what holds others stands before them.

    Args:
      trained: names of the parameters that are trained, by their id; they serve as keys, too.
    """
    seen: set[int] = set()

    def of(value: Any, path: str, holder: Cell | None) -> Iterator[Cell]:
        if id(value) in seen:
            return
        seen.add(id(value))
        insides = [holder] if isinstance(value, tuple) and holder is not None else containers(value)
        for inside in insides:
            for key in _keys(value if isinstance(inside, Cell) else inside):
                cell = Cell(f"{path}{trained.get(id(key), key)}", inside, key)
                held = cell.value
                if id(held) in trained:
                    continue
                yield cell
                if is_open(held):
                    yield from of(held, f"{cell.path}/", cell)

    yield from of(root, "", None)


def containers(value: object) -> list[_Container]:
    """What of a value itself can hold others, as a container that can be changed; none of a tuple's."""
    found: list[_Container] = []
    if isinstance(value, _CLOSED) or _is_number(value):
        return found
    if isinstance(value, dict | list | deque):
        found.append(value)
    if hasattr(value, "__dict__"):
        found.append(vars(value))
    if slots := _slots_of(type(value)):
        found.append(_Slots(value, slots))
    return found


def _slots_of(kind: type) -> list[str]:
    """Not those of types written in C, which are read alone."""
    own = [vars(base) for base in kind.__mro__ if "__slots__" in vars(base)]
    return [n for each in own for n, member in each.items() if isinstance(member, MemberDescriptorType)]


def is_open(value: object) -> bool:
    """Whether a value is looked into."""
    return (isinstance(value, tuple) and not _is_number(value)) or bool(containers(value))


class Places:
    """The places of an object that hold tensors.

    To look into an object takes a millisecond: that is done where it holds others than when it was looked
    into last.
    """

    def __init__(self, root: object, trained: Mapping[int, str]) -> None:
        self._root, self._trained = root, trained
        self._cells: list[tuple[Cell, Any]] = []
        """Each place, and what it is to hold: that very container, or something of that type."""
        self._sizes: list[tuple[_Container, int]] = []

    def tensors(self) -> list[tuple[Cell, Tensor]]:
        """Each place with its tensor of now."""
        now = [cell.value for cell, _ in self._cells]
        if not self._are_as_found(now):
            found = list(cells(self._root, self._trained))
            now = [cell.value for cell in found]
            kinds = [value if is_open(value) else type(value) for value in now]
            self._cells = list(zip(found, kinds, strict=True))
            self._sizes = [
                (inside, len(inside)) for value in (self._root, *now) for inside in containers(value)
            ]
        held = zip(self._cells, now, strict=True)
        return [(cell, value) for (cell, _), value in held if isinstance(value, Tensor)]

    def _are_as_found(self, now: list[Any]) -> bool:
        held = zip(self._cells, now, strict=True)
        return (
            bool(self._sizes)
            and all(len(inside) == size for inside, size in self._sizes)
            and all(value is kind or type(value) is kind for (_, kind), value in held)
        )


class Held:
    """What an object holds now; numbers of tensors on its device are for others to save.

    Args:
      device: tensors elsewhere are the host's.
      trained: see `cells`.
    """

    def __init__(self, root: object, device: torch.device, trained: Mapping[int, str]) -> None:
        self._root, self._trained, self._device = root, trained, device
        places = [(cell.path, cell.value) for cell in cells(root, trained)]
        self._contents = [
            (inside, _content(inside))
            for value in (root, *(value for _, value in places))
            for inside in containers(value)
        ]
        self._written = [(value, _copy(value)) for _, value in places if self._is_written(value)]
        """What the host may write into, and what stood there."""
        copies = {id(value): copy for value, copy in self._written}
        self._before = {path: copies.get(id(value), value) for path, value in places}

    @torch.no_grad()
    def put_back(self) -> None:
        """All containers hold again what they held and nothing else, the host's tensors with their values."""
        for inside, content in self._contents:
            if not _holds(inside, content):
                inside.clear()
                inside.update(content) if isinstance(content, dict) else inside.extend(content)  # type: ignore[union-attr]
        for value, copy in self._written:
            value.copy_(copy) if isinstance(value, Tensor) else np.copyto(value, copy)

    def changed(self) -> list[str]:
        """The host's numbers that are others now, `t: 1 -> 2`, and places that came or went."""
        now = {cell.path: cell.value for cell in cells(self._root, self._trained)}
        found = []
        for path, before in self._before.items():
            if path in now and not self._is_same(before, now[path]):
                found.append(f"{path}: {_told(before)} -> {_told(now[path])}")
        found += [f"{path} is gone" for path in _uppermost(self._before.keys() - now.keys())]
        return found + [f"{path} is new" for path in _uppermost(now.keys() - self._before.keys())]

    def _is_written(self, value: object) -> bool:
        is_elsewhere = isinstance(value, Tensor) and value.device.type != self._device.type
        return is_elsewhere or isinstance(value, np.ndarray)

    def _is_same(self, before: object, now: object) -> bool:
        """Whether two values are one to the host; what is no number of its own always is."""
        are_numbers = [_is_number(value) or self._is_written(value) for value in (before, now)]
        return not any(are_numbers) or (all(are_numbers) and same(before, now))


def same(one: object, other: object) -> bool:
    """Whether two values are one: numbers by value, a NaN being itself; tensors and arrays by their bits."""
    if one is other:
        return True
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and torch.equal(*map(_bits, (one, other)))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        alike = (one.dtype, one.shape) == (other.dtype, other.shape)
        return alike and one.tobytes() == other.tobytes()
    if isinstance(one, Tensor | np.ndarray) or isinstance(other, Tensor | np.ndarray):
        return False
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (one != one and other != other)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _keys(inside: Any) -> list[Any]:
    return [*inside] if isinstance(inside, dict | _Slots) else [*range(len(inside))]


def _content(inside: _Container) -> dict[Any, Any] | list[Any]:
    return {key: inside[key] for key in inside} if isinstance(inside, dict | _Slots) else [*inside]


def _holds(inside: _Container, content: dict[Any, Any] | list[Any]) -> bool:
    """Whether a container still holds these very objects in this order."""
    now = _content(inside)
    if len(now) != len(content):
        return False
    if isinstance(now, dict) and isinstance(content, dict):
        # By identity, since keys may be tensors.
        pairs = zip([*now, *now.values()], [*content, *content.values()], strict=True)
    else:
        pairs = zip(now, content, strict=True)
    return all(one is other for one, other in pairs)


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value.copy()


def _uppermost(paths: set[str]) -> list[str]:
    """Those that lie in no other."""
    found: list[str] = []
    for path in sorted(paths):
        if not any(path.startswith(f"{other}/") for other in found):
            found.append(path)
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, _NUMBERS) or (
        isinstance(value, tuple) and all(isinstance(one, _NUMBERS) for one in value)
    )


def _told(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        size = value.numel() if isinstance(value, Tensor) else value.size
        return _told(value.item()) if size == 1 else f"a tensor {tuple(value.shape)}"
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value) if _is_number(value) else type(value).__name__
