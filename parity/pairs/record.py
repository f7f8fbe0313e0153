"""What a result says of a pair: how its tensors correspond, and how that is known."""

from collections.abc import Iterator

from parity.report.result import PairRecord
from spec.mapping.links import Link, Part, part_shape
from spec.pairs.match import NOT_FINITE, Match

_ROUNDING = 1e-9
"""What rounding leaves between two models in float64 at most. A gradient that is nothing but rounding is held
against a millionth of the whole model's, so 1e-16 of that can be 1e-10."""
_NARROW_LAYER = 1e-6
"""What is left at most where some layer computes in float32 whatever it is given, as flax's attention does:
its rounding of 6e-8, over the sums of a layer."""


def pair_record(folder: str, init: str, match: Match | None) -> PairRecord:
    """The record of a pair; without a match where one side runs alone."""
    if match is None:
        return PairRecord(
            folder=folder,
            init=init,
            links=[],
            unmatched={},
            proven=None,
            tried=0,
            settled=[],
            loss_rel=None,
            worst_gradient=None,
            gradient_rel=None,
            reasons={"links": "one side runs alone", "proven": "one side runs alone"},
        )
    computed = match.tried > 0
    return PairRecord(
        folder=folder,
        init=init,
        links=[describe_link(link, match.paths) for link in match.links],
        unmatched={"torch": list(match.unmatched_torch), "jax": list(match.unmatched_jax)},
        proven=match.proven if computed else None,
        tried=match.tried,
        settled=list(match.settled),
        loss_rel=match.loss_apart if computed and match.loss_apart < NOT_FINITE else None,
        worst_gradient=match.worst_gradient or None,
        gradient_rel=match.gradient_apart if computed and match.gradient_apart < NOT_FINITE else None,
        reasons=_reasons(match),
    )


def _reasons(match: Match) -> dict[str, str]:
    """Why something of the record is null."""
    if not match.tried:
        return {"proven": "; ".join(match.reasons)}
    apart = {"loss_rel": match.loss_apart, "gradient_rel": match.gradient_apart}
    return {name: "something of the first batch is not finite" for name in apart if apart[name] >= NOT_FINITE}


def describe_link(link: Link, paths: dict[str, str]) -> str:
    """`fc.weight <-> fc.kernel, axes (1, 0)`; JAX arrays by the path that their users know."""
    name = paths.get(link.jax, link.jax)
    words = [f"{_piece(link.torch, link.torch_part)} <-> {_piece(name, link.jax_part)}"]
    if link.view and link.view != part_shape(link.torch_shape, link.torch_part):
        words.append(f"read as {link.view}")
    if link.axes and link.axes != tuple(range(len(link.axes))):
        words.append(f"axes {link.axes}")
    if link.flip:
        words.append(f"axes {link.flip} reversed")
    return ", ".join(words)


def _piece(name: str, part: Part | None) -> str:
    return name if part is None else f"{name}[{':, ' * part.axis}{part.start}:{part.stop}]"


def refusals(match: Match) -> list[str]:
    """Why the two models cannot be compared: every tensor without a counterpart, and the ties behind it."""
    lacking = [
        f"{side}: no counterpart for {tensor}"
        for side, tensors in (("torch", match.unmatched_torch), ("jax", match.unmatched_jax))
        for tensor in tensors
    ]
    return [*lacking, *match.ties, *match.trained_alone]


def doubt(match: Match) -> str:
    """Why a difference may be the map's own: candidates were left untried. Empty where nothing is doubted."""
    if match.proven or not match.untried:
        return ""
    open_yet = f", open are {'; '.join(match.settled)}" if match.settled else ""
    return (
        f"map: not proven, so a difference may come from wrong links: the search ended at its limit of "
        f"{match.tried} candidates, {match.untried} more were not tried{open_yet}; say in pair.py which "
        f'tensors correspond, map=(("TORCH NAME", "JAX NAME"), ...), and what you leave out is still found'
    )


def notes(match: Match) -> Iterator[str]:
    """What a reader of the verdict should know of the map."""
    if match.settled and match.proven:
        yield f"map: settled by gradients, after {match.tried} candidates: {'; '.join(match.settled)}"
    if match.proven:
        yield (
            f"map: {len(match.links)} links, proven: losses {match.loss_apart:.1e} apart, gradients "
            f"{match.gradient_apart:.1e} at most"
        )
        yield from _apart(match)
    elif match.not_finite:
        what = " and ".join(match.not_finite)
        yield f"map: not proven: in the first batch, before training, {what} is NaN or infinite: see its rows"
    elif match.tried:
        if match.untried:
            yield doubt(match)
        yield (
            f"map: not proven, no candidate of {match.tried} makes the gradients agree; the likeliest was "
            f"taken (loss {_size(match.loss_apart)} apart, gradient of {match.worst_gradient} "
            f"{_size(match.gradient_apart)})"
        )


def _size(apart: float) -> str:
    return f"{apart:.1e}" if apart < NOT_FINITE else "not finite"


def _apart(match: Match) -> Iterator[str]:
    """What float64 shows of two models under a map that is proven: a small constant bends no map."""
    apart = max(match.loss_apart, match.gradient_apart)
    if match.precision != "f64" or apart <= _ROUNDING:
        return
    of_loss = match.loss_apart > match.gradient_apart
    what = "the loss" if of_loss else f"the gradient of {match.worst_gradient}"
    words = f"in float64, before training, {what} already differs by {apart:.1e}"
    words += ", where rounding leaves about 1e-15"
    if apart > _NARROW_LAYER:
        yield f"the map is proven, the models are not equal: {words}; a constant may differ: parity explain"
    else:
        yield f"{words}: a layer that always computes in float32, or a small constant: parity explain tells"
