"""A solved rule with the numbers that somebody wrote, where they do as well as the solved ones.

Must not: solve for anything but learning rates.

Legend: S steps, N elements of all tensors, T tensors.
"""

from dataclasses import replace

import numpy as np

from parity.explain.fit import rounded
from parity.explain.update_rule.fits import judged
from parity.explain.update_rule.forms import Rule
from parity.explain.update_rule.observed import Observed
from parity.explain.update_rule.shapes import is_same, shape_of
from parity.explain.update_rule.solve import with_best_rates

_WRITTEN_EPS = (1e-8, 1e-6, 1e-5, 1e-7, 1e-4, 1e-3, 1e-10, 1e-12, 1e-16)
_WRITTEN_LIMITS = (1.0, 0.5, 0.1, 5.0, 2.0, 10.0, 0.2, 0.25, 0.01, 0.05, 0.001)


def written(rule: Rule, seen: Observed) -> Rule:
    """With the numbers that somebody wrote, where they do as well."""
    if rule.form.clips and rule.values["max_norm"] >= seen.norms_S.max() + rule.values["clip_eps"]:
        # It acts in no step, so that nothing says that it is there.
        form = replace(rule.form, clips=False)
        rule = replace(rule, form=form, values={name: rule.values[name] for name in form.constants})
    rule = _scaled(rule, seen) if rule.form.clips and clips_all(rule, seen) else rule
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
    best = _likelier_decay(known if _no_worse(known, rule, seen) else rule)
    clipped = _clipped_rates(best, seen) if judged(best, seen).reproduces else None
    if clipped is not None:
        clipped = _scaled(clipped, seen) if clips_all(clipped, seen) else clipped
        if judged(clipped, seen).reproduces:
            return clipped
    return best


def _likelier_decay(rule: Rule) -> Rule:
    """At a constant rate decay with lr and without it are one; nobody writes one above 1."""
    rates_S, highest = rule.rates_S, float(np.abs(rule.decay_T).max(initial=0.0))
    if rule.form.decay != "decoupled" or highest <= 1 or not is_same(rates_S, rates_S[:1], rates_S[0]):
        return rule
    decay_T = np.array([rounded(float(decay * rates_S[0])) if decay else 0.0 for decay in rule.decay_T])
    return replace(rule, form=replace(rule.form, decay="without lr"), decay_T=decay_T)


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


def clips_all(rule: Rule, seen: Observed) -> bool:
    """Whether the optimizer's own clipping acts in every step."""
    return bool((rule.values["max_norm"] < seen.norms_S).all())


def _clipped_rates(rule: Rule, seen: Observed) -> Rule | None:
    """Where rates are a constant times min(1, max_norm / (norm + clip_eps)), the rule written so.

    Without momentum a clipped gradient cannot be told from a lower rate but by this: 1 / rate is then linear
    in the norm.
    """
    rates_S, norms_S = rule.rates_S, seen.norms_S
    if rule.form.clips or shape_of(rates_S).known or not (rates_S > 0).all():
        return None
    order = np.argsort(-norms_S)
    for count in range(len(order), 2, -1):
        clipped, free = order[:count], order[count:]
        columns = np.stack([norms_S[clipped], np.ones(count)], axis=1)
        slower = 1 / rates_S[clipped]
        (slope, shift), *_ = np.linalg.lstsq(columns, slower, rcond=None)
        if slope <= 0 or not is_same(columns @ np.array([slope, shift]), slower, slower.max()):
            continue
        # Where every step is clipped, the product of rate and limit alone is known.
        rate = float(rates_S[free].mean()) if len(free) else 2 * float(rates_S.max())
        if len(free) and not is_same(rates_S[free], np.full(len(free), rate), rate):
            continue
        eps = max(0.0, shift / slope)
        limit = 1 / (slope * rate)
        if len(free):
            rate, limit = rounded(rate), rounded(1 / (slope * rate))
        values = {"max_norm": float(limit), "clip_eps": rounded(eps) if eps > 1e-10 else 0.0}
        return replace(
            rule,
            form=replace(rule.form, clips=True),
            values=rule.values | values,
            rates_S=np.full_like(rates_S, rate),
        )
    return None
