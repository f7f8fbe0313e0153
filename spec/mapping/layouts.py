"""The ways in which a tensor of one shape can lie in an array of another: permuted, merged, split, unit axes.

One rule covers affine and convolution kernels, heads split off a projection and projections fused of several:
the axes of one, permuted, merge neighbour by neighbour into the axes of the other. Several ways may fit, a
square matrix both ways round; the first is the one that the two frameworks' own layers have. Must not: know
names beyond the last word of a path.
"""

from dataclasses import dataclass
from functools import cache
from itertools import permutations

Shape = tuple[int, ...]

_MOST_AXES = 5
"""Permutations of more axes are not tried, but for reversal."""
_MOST_LAYOUTS = 6

_USUAL = {2: (1, 0), 3: (2, 1, 0), 4: (2, 3, 1, 0), 5: (2, 3, 4, 1, 0)}
"""Axes of torch's kernels (out, in, window ...) in flax's order (window ..., in, out), by their number."""


@dataclass(frozen=True)
class Layout:
    """One way; `view`, `axes` and `flip` as in a `Link`."""

    view: Shape
    axes: tuple[int, ...]
    flip: tuple[int, ...] = ()
    cost: float = 0.0
    """0 for what the frameworks' layers have; larger is less likely."""


@cache
def layouts(torch_shape: Shape, jax_shape: Shape, jax_leaf: str) -> tuple[Layout, ...]:
    """All ways, the likeliest first; empty where none fits.

    Args:
      jax_leaf: last word of the array's path: a `kernel` is usually turned, all else usually lies as it is.
    """
    if _size(torch_shape) != _size(jax_shape):
        return ()
    torch_axes, jax_axes = torch_shape, jax_shape
    if len(torch_shape) != len(jax_shape):
        torch_axes, jax_axes = _proper(torch_shape), _proper(jax_shape)
    found: dict[tuple[Shape, tuple[int, ...]], Layout] = {}
    for order in _orders(len(torch_axes)):
        if _merges([torch_axes[axis] for axis in order], jax_axes):
            _add(found, torch_axes, order)
    for order in _orders(len(jax_axes)):
        view = tuple(jax_axes[axis] for axis in order)
        if len(jax_axes) > len(torch_axes) and _merges(view, torch_axes):
            # In torch the axes lie in this order; JAX has them in that of their numbers.
            _add(found, view, tuple(order.index(axis) for axis in range(len(order))))
    usual = _usual(torch_axes, jax_axes, jax_leaf)
    ranked = sorted(found.values(), key=lambda layout: _distance(layout.axes, usual))[:_MOST_LAYOUTS]
    return tuple(Layout(one.view, one.axes, one.flip, float(rank)) for rank, one in enumerate(ranked))


def turned_windows(layout: Layout) -> Layout:
    """The same with its window axes reversed, as torch's transposed convolutions have them."""
    windows = tuple(range(2, len(layout.view)))
    return Layout(layout.view, layout.axes, windows, layout.cost + 0.5)


def _add(found: dict[tuple[Shape, tuple[int, ...]], Layout], view: Shape, axes: tuple[int, ...]) -> None:
    found.setdefault((view, axes), Layout(view, axes))


def _usual(torch_axes: Shape, jax_axes: Shape, leaf: str) -> tuple[int, ...]:
    """The axes of the frameworks' own layers."""
    if leaf != "kernel":
        return tuple(range(max(len(torch_axes), len(jax_axes))))
    if len(torch_axes) == len(jax_axes):
        return _USUAL.get(len(torch_axes), tuple(range(len(torch_axes))))
    # Outputs come first in torch and last in JAX: (heads x size, in) and (in, heads, size), or the like.
    axes = tuple(range(max(len(torch_axes), len(jax_axes))))
    cut = 1 if jax_axes and torch_axes and jax_axes[-1] == torch_axes[0] else len(axes) - 1
    return (*axes[cut:], *axes[:cut])


def _proper(shape: Shape) -> Shape:
    """The shape without axes of length 1, which can lie anywhere."""
    return tuple(length for length in shape if length != 1)


def _orders(num_axes: int) -> list[tuple[int, ...]]:
    axes = tuple(range(num_axes))
    return list(permutations(axes)) if num_axes <= _MOST_AXES else [axes, axes[::-1]]


def _merges(parts: list[int] | Shape, whole: Shape) -> bool:
    """Whether neighbours among the parts multiply to the axes of the whole, in order."""
    position = 0
    for length in whole:
        product = 1
        while product < length and position < len(parts):
            product *= parts[position]
            position += 1
        if product != length:
            return False
    return position == len(parts)


def _distance(axes: tuple[int, ...], usual: tuple[int, ...]) -> int:
    """Axes that lie elsewhere than usual."""
    if len(axes) != len(usual):
        return len(usual)
    return sum(one != other for one, other in zip(axes, usual, strict=True))


def _size(shape: Shape) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
