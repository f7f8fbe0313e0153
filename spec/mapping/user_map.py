"""The user's own links, completed: names checked and shapes filled in.

A link of the user's is never second-guessed; where it gives names alone, the layout is found as for any
other pair. Must not: search.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spec.description import Described, Description
from spec.errors import RuleError, few, nearest
from spec.mapping import names
from spec.mapping.layouts import layouts
from spec.mapping.links import Link, check, part_shape


@dataclass(frozen=True)
class Given:
    """What a user said of some tensors."""

    links: tuple[Link, ...] = ()
    """Whole ones."""
    named: tuple[tuple[str, str], ...] = ()
    """Names of whole tensors, (torch, jax), whose layout is open."""


def complete(links: Sequence[Link], torch: Description, jax: Description) -> tuple[Given, Given]:
    """The links with all that they leave out: those of parameters, and those of buffers.

    Raises:
      RuleError: a name is unknown, the parts do not have as many elements, or an element is linked twice.
    """
    made = [_complete(link, torch, jax) for link in links]
    check([link for link in made if not _is_open(link)])
    buffers = {row.name for row in torch.buffers}

    def given(of_buffers: bool) -> Given:
        own = [link for link in made if (link.torch in buffers) == of_buffers]
        return Given(
            links=tuple(link for link in own if not _is_open(link)),
            named=tuple((link.torch, link.jax) for link in own if _is_open(link)),
        )

    return given(False), given(True)


def _is_open(link: Link) -> bool:
    return not (link.axes or link.view or link.torch_part or link.jax_part)


def _complete(link: Link, torch: Description, jax: Description) -> Link:
    left = _find(link.torch, (*torch.parameters, *torch.buffers), "torch")
    right = _find(link.jax, (*jax.parameters, *jax.buffers), "jax")
    shapes = part_shape(left.shape, link.torch_part), part_shape(right.shape, link.jax_part)
    ways = layouts(*shapes, names.leaf(right.path))
    if not (link.axes or link.view or ways):
        raise RuleError(
            "Linked tensors have as many elements, in axes that merge or split.",
            f"map in pair.py: {left.path} {list(shapes[0])}, {right.path} {list(shapes[1])}",
            "give a whole Link with view and axes, or mend the models",
        )
    link = replace(link, torch=left.name, jax=right.name, torch_shape=left.shape, jax_shape=right.shape)
    if _is_open(link) or link.axes or link.view:
        return link
    return replace(link, view=ways[0].view, axes=ways[0].axes)


def _find(name: str, rows: Iterable[Described], side: str) -> Described:
    rows = list(rows)
    for row in rows:
        if name in (row.path, row.name):
            return row
    paths = [row.path for row in rows]
    raise RuleError(
        "A map names tensors that the models have.",
        f"map in pair.py: {name!r} is no tensor of the {side} side",
        f"{nearest(name, paths)}it has {few(paths, 8, ', ')}",
    )
