"""Which update rule an optimizer of a user's own is, told from what it was given and what it made of it.

Every form of the family is fitted from several beginnings; of those that reproduce the updates to rounding,
the one whose constants are shortest to write is the rule, and the others are told beside it. Must not: read
files, or look at more than one side.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from parity.explain.update_rule.beginnings import beginnings
from parity.explain.update_rule.fits import Fit, judged
from parity.explain.update_rule.forms import Correction, DecayForm, Form, Place, Rule
from parity.explain.update_rule.observed import Observed
from parity.explain.update_rule.solve import median, solve
from parity.explain.update_rule.written import clips_all, written

_MOST_ELEMENTS = 1200
_BEGINNINGS = 3
"""The best of them are solved from, until one reproduces the side."""


def _forms() -> Iterator[Form]:
    """The family, the most usual first."""
    for decay, nesterov in itertools.product(get_args(DecayForm), (False, True)):
        yield Form(kind="sgd", decay=decay, nesterov=nesterov)
    yield from (_ADAMW, _ADAM_L2)
    for decay, correction, place in itertools.product(
        get_args(DecayForm), get_args(Correction), get_args(Place)
    ):
        form = Form(kind="adam", decay=decay, place=place, correction=correction)
        # Where the correction does not change, eps before it and after it are one.
        if form not in (_ADAMW, _ADAM_L2) and (correction == "on" or place != "before"):
            yield form


_ADAMW, _ADAM_L2 = Form(kind="adam"), Form(kind="adam", decay="l2")
_FORMS = tuple(_forms())
_MOST_CLIPPED = 4
"""So many forms are fitted with a clipping of their own too, the nearest ones without it."""


@dataclass(frozen=True)
class Identified:
    """What is known of one side's rule."""

    best: Fit
    others: tuple[Fit, ...]
    """That do as well: of those that reproduce it, or the nearest where none does."""


def identify(seen: Observed) -> Identified:
    """The rule that makes a side's updates, or the nearest where none of the family does."""
    # Beginnings far off give numbers beyond every float; they are given up for what they leave.
    with np.errstate(over="ignore", invalid="ignore"):
        good, fits = _fits(seen)
    ordered = good or sorted(fits, key=lambda fit: fit.residual)
    return Identified(ordered[0], tuple(ordered[1:4]))


def _fits(seen: Observed) -> tuple[list[Fit], list[Fit]]:
    """Those that reproduce the side, the shortest first, and all that were tried."""
    thin = seen.thinned(max(8, _MOST_ELEMENTS // len(seen.sizes)))
    fits: list[Fit] = []
    for form in _FORMS:
        fits += _judged_until_good(form, thin, seen)
        if fits[-1].is_plain:
            break
    if not any(fit.reproduces for fit in fits):
        nearest = sorted(fits, key=lambda fit: median(fit.rule, thin))[:_MOST_CLIPPED]
        for form in dict.fromkeys((_ADAMW, _ADAM_L2, *(fit.rule.form for fit in nearest))):
            fits += _judged_until_good(replace(form, clips=True), thin, seen)
            if fits[-1].is_plain:
                break
    return sorted((fit for fit in fits if fit.reproduces), key=lambda fit: fit.length), fits


def _judged_until_good(form: Form, thin: Observed, seen: Observed) -> list[Fit]:
    fits = []
    for rule in _fitted(form, thin):
        fits.append(judged(rule, seen))
        if fits[-1].reproduces:
            break
    return fits


def _fitted(form: Form, thin: Observed) -> Iterator[Rule]:
    """A form's rule, from the best of many beginnings, with its numbers as they were written."""
    begun = sorted(beginnings(form, thin), key=lambda rule: median(rule, thin))
    for rule in begun[:_BEGINNINGS]:
        held = frozenset({"max_norm"}) if form.clips and clips_all(rule, thin) else frozenset()
        # Constants first: a decay a tensor can hide a wrong one.
        found = solve(rule, thin, held | ({"decay"} if form.decay != "l2" else frozenset()))
        found = solve(found, thin, held)
        yield written(found, thin)
