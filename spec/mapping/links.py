"""Link: which part of a torch tensor lies in which part of a JAX array, and how its axes are ordered there.

    torch part -> reshape to `view` -> reverse `flip` -> permute by `axes` -> reshape -> JAX part

It moves elements and never computes, so the way back is exact. Must not: know a model.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from spec import threads
from spec.errors import RuleError
from spec.params import ParamSpec

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Part:
    """Indices [start, stop) of one axis: a layer of a stack, or the queries of a fused projection."""

    axis: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class Link:
    """One piece that both models have. Shapes are filled in by the tool where they are left out."""

    torch: str
    """Name of the torch tensor, `encoder.layers.0.linear1.weight`."""
    jax: str
    """Name of the JAX array: its path with dots, `encoder.layers.0.linear1.kernel`."""
    axes: tuple[int, ...] = ()
    """Axes of the view in the order in which JAX has them, (1, 0) for a transposed matrix; () as they are."""
    view: tuple[int, ...] = ()
    """Shape that the torch part is read in before its axes are permuted; () its own."""
    flip: tuple[int, ...] = ()
    """Axes of the view that run backwards in JAX."""
    torch_part: Part | None = None
    """None for the whole tensor."""
    jax_part: Part | None = None
    """None for the whole array."""
    torch_shape: tuple[int, ...] = ()
    jax_shape: tuple[int, ...] = ()


def table_links(table: Iterable[ParamSpec]) -> tuple[Link, ...]:
    """The links of a parameter table whose JAX model has the same names: affine matrices alone are turned."""
    return tuple(
        Link(
            torch=row.name,
            jax=row.name,
            axes=(1, 0) if row.layout == "linear" else (),
            torch_shape=row.shape,
            jax_shape=row.shape[::-1] if row.layout == "linear" else row.shape,
        )
        for row in table
    )


def jax_table(table: Iterable[ParamSpec], links: Iterable[Link]) -> tuple[ParamSpec, ...]:
    """The rows of a parameter table under the JAX names, for what does not depend on the layout: the decay.

    Raises:
      RuleError: one JAX array holds parameters that decay and others that do not.
    """
    rows = {row.name: row for row in table}
    found: dict[str, tuple[Link, ParamSpec]] = {}
    for link in links:
        row = rows.get(link.torch)
        if row is None:
            continue
        first, made = found.setdefault(
            link.jax, (link, replace(row, name=link.jax, shape=link.jax_shape, zero_gradient=None))
        )
        if made.decayed != row.decayed:
            raise RuleError(
                "All that lies in one JAX array decays, or none of it.",
                f"{link.jax} holds {first.torch} and {link.torch}",
                "keep matrices and vectors in arrays of their own",
            )
    return tuple(made for _, made in found.values())


def to_jax(links: Iterable[Link], given: Mapping[str, np.ndarray], like: Mapping[str, np.ndarray]) -> Arrays:
    """Copies in JAX's names and layout, in the dtypes and shapes of `like`."""
    found = {name: np.empty(array.shape, array.dtype) for name, array in like.items()}
    for link in links:
        piece = _cut(given[link.torch], link.torch_part)
        target = _cut(found[link.jax], link.jax_part)
        target[...] = _turned(piece, link).reshape(target.shape)
    return found


def to_torch(links: Iterable[Link], held: Mapping[str, np.ndarray]) -> Arrays:
    """Arrays in torch's names and layout, in the dtypes of `held`; in the order of the links."""
    pieces = list(links)
    found = {link.torch: np.empty(link.torch_shape, held[link.jax].dtype) for link in pieces}

    def turn(link: Link) -> None:
        target, view, axes = _cut(found[link.torch], link.torch_part), _view(link), _axes(link)
        turned = _cut(held[link.jax], link.jax_part).reshape([view[axis] for axis in axes])
        piece = np.flip(turned.transpose(np.argsort(axes)), link.flip)
        target[...] = piece.reshape(target.shape)

    threads.each(turn, pieces)
    return found


def _turned(piece: np.ndarray, link: Link) -> np.ndarray:
    return np.flip(piece.reshape(_view(link)), link.flip).transpose(_axes(link))


def _view(link: Link) -> tuple[int, ...]:
    return link.view or part_shape(link.torch_shape, link.torch_part)


def _axes(link: Link) -> tuple[int, ...]:
    return link.axes or tuple(range(len(_view(link))))


def part_shape(shape: tuple[int, ...], part: Part | None) -> tuple[int, ...]:
    """The shape of a part of an array."""
    if part is None:
        return shape
    return (*shape[: part.axis], part.stop - part.start, *shape[part.axis + 1 :])


def _cut(array: np.ndarray, part: Part | None) -> np.ndarray:
    """A view of the part."""
    if part is None:
        return array
    return array[(slice(None),) * part.axis + (slice(part.start, part.stop),)]


def check(links: Iterable[Link]) -> None:
    """Proves that the links are one-to-one: every element that they name goes out and comes back, once.

    Positions take the place of values, so that a lost, doubled or swapped element cannot hide.

    Raises:
      RuleError: the sizes of two linked parts differ, or an element is linked twice or not at all.
    """
    links = tuple(links)
    for link in links:
        _check_sizes(link)
    torch_shapes = {link.torch: link.torch_shape for link in links}
    jax_shapes = {link.jax: link.jax_shape for link in links}
    numbered, start = {}, 0
    for name, shape in torch_shapes.items():
        size = int(np.prod(shape, dtype=np.int64))
        numbered[name] = np.arange(start, start + size).reshape(shape)
        start += size
    blank = {name: np.full(shape, -1, np.int64) for name, shape in jax_shapes.items()}
    moved = to_jax(links, numbered, blank)
    seen = np.sort(np.concatenate([array.reshape(-1) for array in moved.values()] or [np.zeros(0)]))
    back = to_torch(links, moved)
    wrong = [name for name, array in numbered.items() if not np.array_equal(back[name], array)]
    if wrong or not np.array_equal(seen, np.arange(start)):
        raise RuleError(
            "A map links every element of a tensor once.",
            f"{wrong[0] if wrong else 'a JAX array'} does not come back as it went out",
            "look for two links to one part, or a part that is left out",
        )


def _check_sizes(link: Link) -> None:
    one, other = part_shape(link.torch_shape, link.torch_part), part_shape(link.jax_shape, link.jax_part)
    view = _view(link)
    sizes = {int(np.prod(shape, dtype=np.int64)) for shape in (one, other, view)}
    if len(sizes) > 1 or sorted(_axes(link)) != list(range(len(view))):
        raise RuleError(
            "Linked parts have as many elements, and axes are a permutation.",
            f"{link.torch} {one} read as {view}, axes {_axes(link)}, {link.jax} {other}",
            "mend this entry of the pair's map",
        )
