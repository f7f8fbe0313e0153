"""Pieces: whole tensors, or the parts of stacked layers and of fused projections, that one link can join.

Must not: choose among pieces; `propose` does.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from spec.description import Described
from spec.mapping import names
from spec.mapping.links import Part, part_shape


@dataclass(frozen=True)
class Piece:
    """One tensor or a part of it."""

    tensor: Described
    place: float
    """Position among the tensors of its side, in the order of definition, from 0 to 1."""
    part: Part | None = None
    path: str = ""
    """The tensor's own, with the number of the part."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the part."""
        return part_shape(self.tensor.shape, self.part)

    @property
    def size(self) -> int:
        """Elements of the part."""
        size = 1
        for length in self.shape:
            size *= length
        return size


def whole(tensors: Iterable[Described]) -> list[Piece]:
    """Every tensor as one piece."""
    tensors = list(tensors)
    last = max(1, len(tensors) - 1)
    return [Piece(tensor, k / last, None, tensor.path) for k, tensor in enumerate(tensors)]


def cut(piece: Piece, axis: int, number: int) -> list[Piece]:
    """A whole piece as `number` equal parts along an axis."""
    length = piece.shape[axis] // number
    return [
        replace(
            piece, part=Part(axis=axis, start=k * length, stop=(k + 1) * length), path=f"{piece.path}[{k}]"
        )
        for k in range(number)
    ]


def unstack(stacked: list[Piece], layered: list[Piece]) -> list[Piece] | None:
    """The pieces of `stacked` whose first axis counts layers, cut into those; None where none can be.

    A tensor is a stack where the other side has as many tensors, alike but for a number in their names, each
    of so many elements.
    """
    families: dict[str, list[Piece]] = {}
    for piece in layered:
        families.setdefault(names.pattern(piece.path), []).append(piece)
    kinds = {(len(family), family[0].size) for family in families.values() if len(family) > 1}
    found, any_cut = [], False
    for piece in stacked:
        layers = piece.shape[0] if piece.shape and piece.part is None else 0
        if layers > 1 and (layers, piece.size // layers) in kinds:
            found += cut(piece, 0, layers)
            any_cut = True
        else:
            found.append(piece)
    return found if any_cut else None


def groups(pieces: list[Piece]) -> list[list[Piece]]:
    """Pieces that may be parts of one fused tensor: siblings of one shape, such as query, key and value."""
    found: dict[tuple[str, str, int, int], list[Piece]] = {}
    for piece in pieces:
        module, _, leaf = piece.path.rpartition(".")
        layer = piece.part.start if piece.part else -1
        found.setdefault((names.parent(module), leaf, piece.size, layer), []).append(piece)
    return [group for group in found.values() if len(group) > 1]


def fused_axis(fused: Piece, number: int, is_torch: bool) -> int | None:
    """The axis along which a tensor is `number` others: the first in torch; in JAX one of that length, or
    the last that can be cut."""
    shape = fused.shape
    if fused.part is not None or not shape:
        return None
    if is_torch:
        return 0 if shape[0] % number == 0 else None
    axes = [axis for axis, length in enumerate(shape) if length == number]
    axes += [axis for axis in reversed(range(len(shape))) if shape[axis] % number == 0]
    return axes[0] if axes else None
