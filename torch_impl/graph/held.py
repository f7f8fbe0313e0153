"""What an object keeps on the host from one call to the next: noted, put back, and told where it has changed.

A graph reads tensors on the device anew in every replay, and has the host's numbers as they were when it was
captured. Must not: know what they mean.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_impl.graph.cells import Container, Slots, cells, containers, is_number


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
        are_numbers = [is_number(value) or self._is_written(value) for value in (before, now)]
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


def _content(inside: Container) -> dict[Any, Any] | list[Any]:
    return {key: inside[key] for key in inside} if isinstance(inside, dict | Slots) else [*inside]


def _holds(inside: Container, content: dict[Any, Any] | list[Any]) -> bool:
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


def _told(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        size = value.numel() if isinstance(value, Tensor) else value.size
        return _told(value.item()) if size == 1 else f"a tensor {tuple(value.shape)}"
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value) if is_number(value) else type(value).__name__
