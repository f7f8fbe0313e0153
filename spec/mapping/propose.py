"""Proposes how two models' tensors correspond, and lists what names and shapes leave open as choices.

Whole tensors are paired first, by names, places in the order of definition, first values and owners; then
layers of stacks; then parts of fused projections. What stays over has no counterpart. Must not: settle a
choice; `search` does, by what the models compute.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from spec.description import Described
from spec.mapping import names
from spec.mapping.assign import IMPOSSIBLE, assign
from spec.mapping.layouts import Layout, layouts, turned_windows
from spec.mapping.links import Link
from spec.mapping.pieces import Piece, cut, fused_axis, groups, unstack, whole
from spec.mapping.user_map import Given

_SWAP_COST = 1.5
"""Two pairs are confusable where exchanging their partners costs less than this."""
_MOST_CONFUSABLE = 4

Pair = tuple[Piece, Piece]


@dataclass(frozen=True)
class Choice:
    """One thing left open: which of the pairs' partners, or which layout. Layers of a stack choose alike."""

    about: str
    options: tuple[tuple[float, tuple[int, ...]], ...]
    """(cost, what): for partners the order of the JAX pieces, for a layout its number alone; cheapest
    first."""
    members: tuple[tuple[int, ...], ...]
    """Numbers of the pairs: those whose partners are exchanged, one group a layer; or those of one layout."""
    is_layout: bool


@dataclass
class Proposal:
    """Pairs, what is open about them, and what has no counterpart."""

    pairs: list[Pair] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    unmatched_torch: list[Described] = field(default_factory=list)
    unmatched_jax: list[Described] = field(default_factory=list)
    given: tuple[Link, ...] = ()
    named: int = 0
    """So many of the pairs, the first ones, are the user's own."""

    def links(self, chosen: Sequence[int]) -> tuple[Link, ...]:
        """The links under one option of each choice, the torch tensors in their order."""
        partners = [jax for _, jax in self.pairs]
        layout_of = dict.fromkeys(range(len(self.pairs)), 0)
        for choice, number in zip(self.choices, chosen, strict=True):
            what = choice.options[number][1]
            for group in choice.members:
                if choice.is_layout:
                    layout_of.update(dict.fromkeys(group, what[0]))
                else:
                    moved = [partners[group[k]] for k in what]
                    for pair, partner in zip(group, moved, strict=True):
                        partners[pair] = partner
        made = [_link(torch, partners[k], layout_of[k]) for k, (torch, _) in enumerate(self.pairs)]
        return (*self.given, *made)


def propose(torch: Sequence[Described], jax: Sequence[Described], given: Given | None = None) -> Proposal:
    """The likeliest correspondence of two lists of tensors, in the order in which each model defines them.

    Args:
      given: what the user said of some tensors, checked; it stands.
    """
    given = given or Given()
    linked = {link.torch for link in given.links}, {link.jax for link in given.links}
    left = [piece for piece in whole(torch) if piece.tensor.name not in linked[0]]
    right = [piece for piece in whole(jax) if piece.tensor.name not in linked[1]]
    proposal = Proposal(given=given.links, named=len(given.named))
    for one, other in given.named:
        pair = _take(left, one), _take(right, other)
        proposal.pairs.append(pair)
    left, right = _pair_up(proposal, left, right)
    for cut_side in (0, 1):
        sides = [left, right]
        layered = unstack(sides[cut_side], sides[1 - cut_side])
        if layered is not None:
            sides[cut_side] = layered
            left, right = _pair_up(proposal, *sides)
    left, right = _fuse(proposal, left, right, fused_is_torch=True)
    right, left = _fuse(proposal, right, left, fused_is_torch=False)
    _undo_partial(proposal, left, right)
    proposal.choices = [*_partner_choices(proposal), *_layout_choices(proposal.pairs)]
    return proposal


def _take(pieces: list[Piece], name: str) -> Piece:
    return pieces.pop(next(k for k, piece in enumerate(pieces) if piece.tensor.name == name))


def _pair_up(proposal: Proposal, left: list[Piece], right: list[Piece]) -> tuple[list[Piece], list[Piece]]:
    """Pairs what has the same number of elements, at the least cost; returns what is left over."""
    pairs: list[tuple[int, int]] = []
    for size in sorted({piece.size for piece in left} & {piece.size for piece in right}):
        rows = [k for k, piece in enumerate(left) if piece.size == size]
        columns = [k for k, piece in enumerate(right) if piece.size == size]
        costs = np.array([[_cost(left[row], right[column]) for column in columns] for row in rows])
        pairs += [(rows[row], columns[column]) for row, column in assign(costs)]
    proposal.pairs += [(left[row], right[column]) for row, column in sorted(pairs)]
    taken = {row for row, _ in pairs}, {column for _, column in pairs}
    return (
        [piece for k, piece in enumerate(left) if k not in taken[0]],
        [piece for k, piece in enumerate(right) if k not in taken[1]],
    )


def _fuse(
    proposal: Proposal, fused: list[Piece], parts: list[Piece], fused_is_torch: bool
) -> tuple[list[Piece], list[Piece]]:
    """Cuts tensors of `fused` into as many as a group of siblings of `parts` has, and pairs those."""
    for group in groups(parts):
        candidates = [
            (names.distance(names.parent(names.parent(group[0].path)), names.parent(piece.path)), k)
            for k, piece in enumerate(fused)
            if piece.size == len(group) * group[0].size
            and fused_axis(piece, len(group), fused_is_torch) is not None
        ]
        if not candidates:
            continue
        # The one whose place among the tensors is nearest, of those with the nearest names.
        _, chosen = min(candidates, key=lambda item: (item[0], abs(fused[item[1]].place - group[0].place)))
        piece = fused.pop(chosen)
        axis = fused_axis(piece, len(group), fused_is_torch)
        assert axis is not None
        pieces = cut(piece, axis, len(group))
        ordered = sorted(group, key=lambda one: _usual_order(one.path))
        pairs = zip(pieces, ordered, strict=True) if fused_is_torch else zip(ordered, pieces, strict=True)
        proposal.pairs += list(pairs)
        parts = [one for one in parts if one not in group]
    return fused, parts


def _usual_order(path: str) -> tuple[int, str]:
    """Queries, keys, values; gates i, f, g, o; and r, z, n: the order in which libraries fuse them."""
    module = names.leaf(names.parent(path.partition("[")[0]))
    letters = [word[-1] for word in (names.words(module) or [module])]
    order = "qkvifgorzn"
    return min((order.find(letter) % 99 for letter in letters), default=99), path


def _undo_partial(proposal: Proposal, left: list[Piece], right: list[Piece]) -> None:
    """A tensor of which a part found no partner is unmatched as a whole."""
    lost = {piece.tensor.name for piece in left}, {piece.tensor.name for piece in right}
    broken = [
        pair for pair in proposal.pairs if pair[0].tensor.name in lost[0] or pair[1].tensor.name in lost[1]
    ]
    proposal.pairs = [pair for pair in proposal.pairs if pair not in broken]
    for pieces, unmatched in (
        ([*left, *(torch for torch, _ in broken)], proposal.unmatched_torch),
        ([*right, *(jax for _, jax in broken)], proposal.unmatched_jax),
    ):
        unmatched += {piece.tensor.name: piece.tensor for piece in pieces}.values()


def _cost(torch: Piece, jax: Piece) -> float:
    """How unlikely a pair is, from 0 to about 4."""
    if not _layouts(torch, jax):
        return IMPOSSIBLE
    one, other = torch.tensor, jax.tensor
    # A tensor of equal values begins so on both sides: ones, zeros.
    values = float((one.std == 0) != (other.std == 0) or (one.std == 0 and one.mean != other.mean))
    kinds = float(names.distance(one.owner, other.owner) > 0)
    counted = float(names.numbers(torch.path) != names.numbers(jax.path))
    return (
        2 * names.distance(torch.path, jax.path)
        + abs(torch.place - jax.place)
        + 0.5 * values
        + 0.25 * kinds
        + 0.75 * counted
    )


def _layouts(torch: Piece, jax: Piece) -> tuple[Layout, ...]:
    found = layouts(torch.shape, jax.shape if jax.part is None else _without_unit(jax), names.leaf(jax.path))
    if "ConvTranspose" in torch.tensor.owner + jax.tensor.owner and len(torch.shape) > 2:
        # torch stores what the transposed convolution was made from: outputs second, windows reversed.
        windows = tuple(range(2, len(torch.shape)))
        usual = [one for one in found if one.axes == (*windows, 0, 1)]
        found = (*map(turned_windows, usual), *found)
    return found


def _without_unit(piece: Piece) -> tuple[int, ...]:
    """The shape of one layer of a stack, the axis of layers left out."""
    shape, part = piece.shape, piece.part
    if part is not None and shape[part.axis] == 1:
        return (*shape[: part.axis], *shape[part.axis + 1 :])
    return shape


def _link(torch: Piece, jax: Piece, number: int) -> Link:
    found = _layouts(torch, jax)
    layout = found[min(number, len(found) - 1)]
    return Link(
        torch=torch.tensor.name,
        jax=jax.tensor.name,
        axes=layout.axes,
        view=layout.view,
        flip=layout.flip,
        torch_part=torch.part,
        jax_part=jax.part,
        torch_shape=torch.tensor.shape,
        jax_shape=jax.tensor.shape,
    )


def _partner_choices(proposal: Proposal) -> list[Choice]:
    """Groups of pairs whose partners could as well be exchanged, alike groups of other layers together."""
    pairs, found = proposal.pairs, dict[tuple[str, ...], list[tuple[int, ...]]]()
    for group in _confusable(pairs, proposal.named):
        found.setdefault(tuple(names.pattern(pairs[k][0].path) for k in group), []).append(group)
    choices = []
    for about, groups_ in found.items():
        first = groups_[0]
        base = sum(_cost(*pairs[k]) for k in first)
        options = []
        for order in permutations(range(len(first))):
            cost = sum(_cost(pairs[k][0], pairs[first[j]][1]) for k, j in zip(first, order, strict=True))
            if cost < IMPOSSIBLE:
                options.append((max(0.0, cost - base), order))
        options.sort(key=lambda option: option[0])
        choices.append(Choice("partners of " + ", ".join(about), tuple(options), tuple(groups_), False))
    return choices


def _confusable(pairs: list[Pair], named: int) -> list[tuple[int, ...]]:
    """Disjoint groups, at most `_MOST_CONFUSABLE` large, of all but the first `named` pairs."""
    group_of = {k: [k] for k in range(len(pairs))}
    swaps = []
    for k, (torch, jax) in list(enumerate(pairs))[named:]:
        for j in range(k + 1, len(pairs)):
            other_torch, other_jax = pairs[j]
            if torch.size != other_torch.size:
                continue
            exchanged = _cost(torch, other_jax) + _cost(other_torch, jax)
            extra = exchanged - _cost(torch, jax) - _cost(other_torch, other_jax)
            if extra < _SWAP_COST:
                swaps.append((extra, k, j))
    for _, k, j in sorted(swaps):
        one, other = group_of[k], group_of[j]
        if one is not other and len(one) + len(other) <= _MOST_CONFUSABLE:
            one += other
            group_of.update(dict.fromkeys(other, one))
    unique = {id(group): tuple(sorted(group)) for group in group_of.values() if len(group) > 1}
    return sorted(unique.values())


def _layout_choices(pairs: list[Pair]) -> list[Choice]:
    """Layouts that shapes leave open, one choice for all tensors of a kind."""
    found: dict[tuple[object, ...], list[int]] = {}
    for k, (torch, jax) in enumerate(pairs):
        if len(_layouts(torch, jax)) > 1:
            kind = (names.pattern(names.leaf(jax.path)), torch.shape, jax.shape, torch.tensor.owner)
            found.setdefault(kind, []).append(k)
    choices = []
    for members in found.values():
        ways = _layouts(*pairs[members[0]])
        options = tuple((way.cost + 0.5 * (k > 0), (k,)) for k, way in enumerate(ways))
        about = "layout of " + ", ".join(pairs[k][0].path for k in members[:3])
        choices.append(Choice(about, options, (tuple(members),), True))
    return choices
