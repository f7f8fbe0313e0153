"""Whether tensors have no counterpart because one side alone ties them: an output head that is the embedding.

Two models of which one is tied are not comparable, since they have not the same parameters. How they relate
is shown all the same: at equal values their losses agree, and the gradient of the tied tensor is the sum of
what the other side's uses of it give. Must not: make a tied model comparable.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from spec.description import Described, Description
from spec.mapping.links import Link
from spec.mapping.propose import propose
from spec.mapping.search import Agreement, search
from spec.mapping.user_map import Given
from spec.pairs.probe import distances
from spec.weights import Tensors

Ask = Callable[[tuple[Link, ...], Tensors], tuple[float, Tensors]]
"""(links, tensors by `probe/NAME`) -> (sum of losses, gradients) of this side's model at those weights."""


def told(torch: Description, own: Description, given: Given, theirs: Tensors, ask: Ask) -> tuple[str, ...]:
    """A sentence for each group that one side alone ties; none where ties explain nothing.

    Args:
      theirs: what the torch side wrote of itself, with its gradients.
    """
    rows = (*torch.parameters, *_aliases(torch))
    apart = propose(rows, own.parameters, given)
    if len(rows) > len(torch.parameters) and not (apart.unmatched_torch or apart.unmatched_jax):
        return _with_proof(torch, own, theirs, lambda evaluate: search(apart, evaluate).links, ask)
    rows = (*own.parameters, *_aliases(own))
    apart = propose(torch.parameters, rows, given)
    if len(rows) > len(own.parameters) and not (apart.unmatched_torch or apart.unmatched_jax):
        return tuple(f"tied in jax alone: {_words(group)}; torch holds them apart" for group in own.ties)
    return ()


def _with_proof(
    torch: Description,
    own: Description,
    theirs: Tensors,
    settle: Callable[[Callable[[tuple[Link, ...]], Agreement]], tuple[Link, ...]],
    ask: Ask,
) -> tuple[str, ...]:
    values = {key: array for key, array in theirs.items() if key.startswith("probe/")}
    for first, *others in torch.ties:
        values |= {f"probe/{name}": values[f"probe/{first}"] for name in others}
    grads = {key[5:]: array for key, array in theirs.items() if key.startswith("grad/")}

    def evaluate(links: tuple[Link, ...]) -> Agreement:
        loss_sum, ours = ask(links, values)
        for first, *others in torch.ties:
            ours[first] = sum((ours[name] for name in others), ours[first])
        wanted = math.nan if torch.loss_sum is None else torch.loss_sum
        size = max(abs(wanted), abs(loss_sum))
        loss = abs(loss_sum - wanted) / size if size else 0.0
        return Agreement(loss=loss, gradients=distances(grads, ours))

    links = settle(evaluate)
    agreement = evaluate(links)
    paths = {row.name: row.path for row in own.parameters}
    return tuple(
        f"tied in torch alone: {_words(group)}; jax holds apart "
        f"{' and '.join(paths[link.jax] for link in links if link.torch in group)}. At equal values the "
        f"losses are {agreement.loss:.1e} apart, and the sum of jax's gradients of them is "
        f"{agreement.gradients[group[0]]:.1e} from torch's gradient of {group[0]}"
        for group in torch.ties
    )


def _aliases(description: Description) -> tuple[Described, ...]:
    """The other names of tied parameters, as if they were parameters of their own."""
    rows = {row.name: row for row in description.parameters}
    return tuple(
        replace(rows[first], name=name, path=name)
        for first, *others in description.ties
        if first in rows
        for name in others
    )


def _words(group: tuple[str, ...]) -> str:
    return " is ".join(group)
