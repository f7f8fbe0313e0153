"""Which update rule an optimizer of a user's own is, told from what it was given and what it made of it.

Every form of the family is fitted from several beginnings; of those that reproduce the updates to rounding,
the one whose constants are shortest to write is the rule, and the others are told beside it. Must not: read
files, or look at more than one side.

Legend: S steps, N elements of all tensors, T tensors.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from parity.explain.fit import rounded
from parity.explain.update_rule.forms import Form, Rule, updates
from parity.explain.update_rule.observed import Observed
from parity.explain.update_rule.shapes import Shape, clipped_rates, shape_of
from parity.explain.update_rule.solve import misses, solve, with_best_rates

SMALL = 1e-12
"""A rule reproduces what it leaves so little of, relative to the update, or no more than rounding would."""

_MOST_ELEMENTS = 1200
_BETAS = ((0.9, 0.999), (0.9, 0.95), (0.9, 0.99), (0.8, 0.95), (0.95, 0.98), (0.5, 0.9), (0.0, 0.999))
_EPS = (1e-8, 1e-5, 1e-3)
_WRITTEN_EPS = (1e-8, 1e-6, 1e-5, 1e-7, 1e-4, 1e-3, 1e-10, 1e-12, 1e-16)
_WRITTEN_LIMITS = (1.0, 0.5, 0.1, 5.0, 2.0, 10.0, 0.2, 0.25, 0.01, 0.05, 0.001)
_DECAYS = (0.0, *np.geomspace(1e-5, 3.0, 23))


def _forms() -> Iterator[Form]:
    """The family, the most usual first."""
    for decay, nesterov in itertools.product(("decoupled", "l2", "without lr"), (False, True)):
        yield Form(kind="sgd", decay=decay, nesterov=nesterov)
    yield from (_ADAMW, _ADAM_L2)
    for decay, correction, place in itertools.product(
        ("decoupled", "without lr", "l2"), ("on", "frozen", "off"), ("after", "before", "inside")
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
class Fit:
    """One form fitted to one side."""

    rule: Rule
    residual: float
    """RMS of what is left over the RMS of the update, at the worst tensor and step."""
    excess: float
    """The same in units of what is allowed; at most 1 where the rule reproduces the side."""

    @cached_property
    def shape(self) -> Shape:
        """Of the learning rates."""
        return shape_of(self.rule.rates_S)

    @property
    def reproduces(self) -> bool:
        """Whether rounding alone is left."""
        return self.excess <= 1.0

    @property
    def length(self) -> float:
        """How much there is to write down: digits of the constants, and of the learning rates' shape."""
        numbers = [*self.rule.values.values(), *{float(decay) for decay in self.rule.decay_T}]
        return sum(_digits(number) for number in numbers) + self.shape.length


@dataclass(frozen=True)
class Identified:
    """What is known of one side's rule."""

    best: Fit
    others: tuple[Fit, ...]
    """That do as well: of those that reproduce it, or the nearest where none does."""


def identify(seen: Observed) -> Identified:
    """The rule that makes a side's updates, or the nearest where none of the family does."""
    thin = seen.thinned(max(8, _MOST_ELEMENTS // len(seen.sizes)))
    fits: list[Fit] = []
    for form in _FORMS:
        fits += _judged_until_good(form, thin, seen)
        if _is_plain(fits[-1]):
            break
    if not any(fit.reproduces for fit in fits):
        nearest = sorted(fits, key=lambda fit: _median(fit.rule, thin))[:_MOST_CLIPPED]
        for form in dict.fromkeys((_ADAMW, _ADAM_L2, *(fit.rule.form for fit in nearest))):
            fits += _judged_until_good(replace(form, clips=True), thin, seen)
            if _is_plain(fits[-1]):
                break
    good = sorted((fit for fit in fits if fit.reproduces), key=lambda fit: fit.length)
    ordered = good or sorted(fits, key=lambda fit: fit.residual)
    return Identified(ordered[0], tuple(ordered[1:4]))


def judged(rule: Rule, seen: Observed) -> Fit:
    """How well a rule with all its constants reproduces a side."""
    left_ST = seen.rms(seen.updates_SN - updates(rule, seen))
    allowed_ST = np.maximum(SMALL * seen.size_ST, seen.rounding_ST)
    with np.errstate(invalid="ignore"):
        relative_ST = left_ST / np.maximum(seen.size_ST, seen.rounding_ST / SMALL)
    finite = bool(np.isfinite(left_ST).all())
    return Fit(
        rule,
        float(relative_ST.max()) if finite else float("inf"),
        float((left_ST / np.maximum(allowed_ST, 1e-300)).max()) if finite else float("inf"),
    )


def _judged_until_good(form: Form, thin: Observed, seen: Observed) -> list[Fit]:
    fits = []
    for rule in _fitted(form, thin):
        fits.append(judged(rule, seen))
        if fits[-1].reproduces:
            break
    return fits


def _is_plain(fit: Fit) -> bool:
    """Whether it reproduces the side with numbers that somebody wrote."""
    return fit.reproduces and fit.shape.known and all(_digits(v) <= 4 for v in fit.rule.values.values())


def _digits(number: float) -> int:
    short = f"{number:.9g}" if number < 0.5 else f"{1 - number:.6g}"
    return len(short.partition("e")[0].replace(".", "").replace("-", "").strip("0"))


def _fitted(form: Form, thin: Observed) -> Iterator[Rule]:
    """A form's rule, from the best of many beginnings, with its numbers as they were written."""
    begun = sorted(_beginnings(form, thin), key=lambda rule: _median(rule, thin))
    for rule in begun[: 3 if form.clips else 1]:
        held = frozenset({"max_norm"}) if form.clips and _clips_all(rule, thin) else frozenset()
        # Constants first: a decay a tensor can hide a wrong one.
        found = solve(rule, thin, held | ({"decay"} if form.decay != "l2" else frozenset()))
        found = solve(found, thin, held)
        yield _written(found, thin)


def _median(rule: Rule, seen: Observed) -> float:
    return float(np.median(np.abs(misses(rule, seen))))


def _beginnings(form: Form, seen: Observed) -> Iterator[Rule]:
    none_T = np.zeros(len(seen.sizes))
    if form.kind == "sgd":
        constants = [{"momentum": momentum} for momentum in (0.0, 0.9, 0.5, 0.99)]
    else:
        constants = [{"beta1": b1, "beta2": b2, "eps": eps} for b1, b2 in _BETAS for eps in _EPS]
    rates_S = np.ones(seen.num_steps)
    for values, clip in itertools.product(constants, _clip_beginnings(form, seen)):
        rule = Rule(form=form, values=values | clip, rates_S=rates_S, decay_T=none_T)
        if form.kind == "adam" and form.decay == "l2" and values["eps"] == _EPS[0]:
            yield with_best_rates(_decays_begun(rule, seen), seen)
        yield with_best_rates(rule, seen)


def _clip_beginnings(form: Form, seen: Observed) -> list[dict[str, float]]:
    """Limits between two norms each, so that every number of clipped steps is begun with."""
    if not form.clips:
        return [{}]
    norms = np.sort(seen.norms_S)
    limits = [0.5 * norms[0], *np.sqrt(norms[1:] * norms[:-1])]
    return [{"max_norm": float(limit), "clip_eps": 0.0} for limit in limits]


def _clips_all(rule: Rule, seen: Observed) -> bool:
    return bool((rule.values["max_norm"] < seen.norms_S).all())


def _decays_begun(rule: Rule, seen: Observed) -> Rule:
    """For each tensor the decay in its gradient that leaves least, tried one after another.

    The rates are taken for each tensor by itself: a wrong decay of another one would spoil common ones.
    """
    best_T, least_T = np.zeros(len(seen.sizes)), np.full(len(seen.sizes), np.inf)
    for decay in _DECAYS:
        tried = replace(rule, decay_T=np.full(len(seen.sizes), decay))
        made_SN = -updates(tried.with_rates(np.ones(seen.num_steps)), seen)
        square_ST = np.maximum(seen.sums(made_SN**2), 1e-300)
        rates_ST = -seen.sums(made_SN * seen.updates_SN) / square_ST
        left_SN = np.abs(seen.updates_SN + rates_ST[:, seen.tensor_N] * made_SN)
        left_T = seen.sums(left_SN / np.maximum(seen.size_ST, 1e-300)[:, seen.tensor_N]).mean(0)
        better_T = left_T < least_T * (1 - 1e-9)
        best_T, least_T = np.where(better_T, decay, best_T), np.where(better_T, left_T, least_T)
    return replace(rule, decay_T=best_T)


def _written(rule: Rule, seen: Observed) -> Rule:
    """With the numbers that somebody wrote, where they do as well."""
    rule = _scaled(rule, seen) if rule.form.clips and _clips_all(rule, seen) else rule
    known = replace(rule, decay_T=_decays_written(rule, seen))
    known = with_best_rates(known, seen)
    values, taken = dict(known.values), set()
    for name, value in known.values.items():
        short = 0.0 if name in ("clip_eps", "momentum") and abs(value) < 1e-9 else rounded(value)
        tried = with_best_rates(replace(known, values=values | {name: short}), seen)
        if _no_worse(tried, known, seen):
            values[name] = short
            taken.add(name)
            known = tried
    known = replace(known, rounded=frozenset(taken))
    best = known if _no_worse(known, rule, seen) else rule
    clipped = clipped_rates(best, seen) if judged(best, seen).reproduces else None
    if clipped is not None:
        clipped = _scaled(clipped, seen) if _clips_all(clipped, seen) else clipped
        if judged(clipped, seen).reproduces:
            return clipped
    return best


def _no_worse(tried: Rule, rule: Rule, seen: Observed) -> bool:
    return judged(tried, seen).excess <= max(1.0, 1.5 * judged(rule, seen).excess)


def _decays_written(rule: Rule, seen: Observed) -> np.ndarray:
    """(T,): one number for all tensors that share it; 0 where a decay is no more than rounding."""
    decay_T = rule.decay_T
    told_T = np.sqrt(seen.sums(seen.params_SN[:-1] ** 2).sum(0))
    per_rate = 1.0 if rule.form.decay == "without lr" else max(float(np.abs(rule.rates_S).max()), 1e-300)
    least = 4000 * 2.0**-53 / per_rate
    if rule.form.decay == "l2" and rule.form.kind == "adam":
        least = max(least, 1e-9)
    decayed_T = np.abs(decay_T) > np.maximum(least, 1e-3 * np.abs(decay_T).max(initial=0.0))
    if not decayed_T.any():
        return np.zeros_like(decay_T)
    common = rounded(float(decay_T[np.argmax(np.where(decayed_T, told_T * np.abs(decay_T), -1.0))]))
    own_T = np.array([rounded(float(decay)) if decay else 0.0 for decay in decay_T])
    near_T = np.abs(decay_T - common) <= 1e-3 * abs(common)
    return np.where(decayed_T, np.where(near_T, common, own_T), 0.0)


def _scaled(rule: Rule, seen: Observed) -> Rule:
    """Where every step is clipped, the limit is known up to a factor: one with a written eps, or rate."""
    lowest, old = float(seen.norms_S.min()), rule.values["max_norm"]
    if rule.form.kind == "adam" and rule.values["eps"]:
        limits = [old * eps / rule.values["eps"] for eps in _WRITTEN_EPS]
    elif rule.form.kind == "sgd":
        limits = list(_WRITTEN_LIMITS)
    else:
        return rule
    for limit in limits:
        short, share = float(f"{limit:.1e}"), float(f"{limit:.1e}") / old
        rate = float(np.median(rule.rates_S)) / share
        is_written = abs(short - limit) <= 1e-4 * limit and (
            rule.form.kind == "adam" or abs(float(f"{rate:.1e}") - rate) <= 1e-6 * rate
        )
        if limit > 1.01 * lowest or not is_written:
            continue
        values = rule.values | {"max_norm": short}
        if rule.form.kind == "adam":
            values["eps"] = rule.values["eps"] * share
        decay_T = rule.decay_T * share if rule.form.decay == "l2" else rule.decay_T
        rates_S = rule.rates_S if rule.form.kind == "adam" else rule.rates_S / share
        return replace(rule, values=values, decay_T=decay_T, rates_S=rates_S)
    return rule
