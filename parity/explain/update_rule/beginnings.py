"""Where the fit of a form begins: constants that people write, and decays and limits tried in turn.

Must not: solve.

Legend: S steps, N elements of all tensors, T tensors.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from parity.explain.update_rule.forms import Form, Rule, updates
from parity.explain.update_rule.observed import Observed
from parity.explain.update_rule.solve import with_best_rates

_BETAS = ((0.9, 0.999), (0.9, 0.95), (0.9, 0.99), (0.8, 0.95), (0.95, 0.98), (0.5, 0.9), (0.0, 0.999))
_EPS = (1e-8, 1e-5, 1e-3)
_DECAYS = (0.0, *np.geomspace(1e-5, 3.0, 23))


def beginnings(form: Form, seen: Observed) -> Iterator[Rule]:
    """Rules to begin with, learning rates fitted."""
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
