"""Where an object keeps things from one call to the next: its places, whatever lies in them.

Looked into are attributes, slots, dictionaries, lists, tuples, deques, and objects and modules in them. Left
out are sets, iterators, random generators of its own, and functions and methods with all that they are bound
to or close over: what is kept there shows only in that the same calls do not give the same twice. Must not:
know what anything means.
"""

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor

_NUMBERS = bool | int | float | complex | str | None | np.generic
_CLOSED = type | FunctionType | BuiltinFunctionType | MethodType | ModuleType | Tensor | np.ndarray


class Slots:
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


Container = dict[Any, Any] | list[Any] | deque[Any] | Slots


@dataclass(frozen=True)
class Cell:
    """A place in an object."""

    path: str
    """`state/fc.weight/step`"""
    inside: "Container | Cell"
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


def containers(value: object) -> list[Container]:
    """What of a value itself can hold others, as a container that can be changed; none of a tuple's."""
    found: list[Container] = []
    if isinstance(value, _CLOSED) or is_number(value):
        return found
    if isinstance(value, dict | list | deque):
        found.append(value)
    if hasattr(value, "__dict__"):
        found.append(vars(value))
    if slots := _slots_of(type(value)):
        found.append(Slots(value, slots))
    return found


def _slots_of(kind: type) -> list[str]:
    """Not those of types written in C, which are read alone."""
    own = [vars(base) for base in kind.__mro__ if "__slots__" in vars(base)]
    return [n for each in own for n, member in each.items() if isinstance(member, MemberDescriptorType)]


def is_open(value: object) -> bool:
    """Whether a value is looked into."""
    return (isinstance(value, tuple) and not is_number(value)) or bool(containers(value))


class Places:
    """The places of an object that hold tensors.

    To look into an object takes a millisecond: that is done where it holds others than when it was looked
    into last.
    """

    def __init__(self, root: object, trained: Mapping[int, str]) -> None:
        self._root, self._trained = root, trained
        self._cells: list[tuple[Cell, Any]] = []
        """Each place, and what it is to hold: that very container, or something of that type."""
        self._sizes: list[tuple[Container, int]] = []

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


def _keys(inside: Any) -> list[Any]:
    return [*inside] if isinstance(inside, dict | Slots) else [*range(len(inside))]


def is_number(value: object) -> bool:
    """Whether a value is a number of the host's, or a tuple of such, by which a name counts as one."""
    return isinstance(value, _NUMBERS) or (
        isinstance(value, tuple) and all(isinstance(one, _NUMBERS) for one in value)
    )
