"""The constants of a form, solved from observed steps: Gauss-Newton with damping, outliers counting less.

A form that is right leaves rounding alone, so that an approximate derivative is enough and the last steps
are small. Unknown are the form's constants, one decay a tensor and one learning rate a step. Must not: choose
a form, or prefer written numbers to others.

Legend: S steps, N elements of all tensors, T tensors, K unknowns.
"""

from dataclasses import replace

import numpy as np

from parity.explain.update_rule.forms import Rule, directions, updates
from parity.explain.update_rule.observed import Observed

_MOST_STEPS = 60
_SLOW, _MOST_SLOW = 0.97, 3
"""A form that is right falls fast; one that falls by less than this so often in a row is given up."""
_MOST_DAMPING = 1e8
_LEAST_GAP = 1e-7
"""Betas stay so far below 1."""
_GAPS = ("beta1", "beta2", "momentum")
"""Constants that are solved for as log(1 - x)."""


def misses(rule: Rule, seen: Observed) -> np.ndarray:
    """(S, N): what is left of the updates, over the size of each tensor's."""
    return (seen.updates_SN - updates(rule, seen)) / _scale(seen)


def median(rule: Rule, seen: Observed) -> float:
    """The usual size of what is left."""
    return float(np.median(np.abs(misses(rule, seen))))


def with_best_rates(rule: Rule, seen: Observed) -> Rule:
    """The same rule at the learning rates that fit best, given everything else."""
    rest = rule.with_rates(np.zeros(seen.num_steps))
    wanted_SN = (seen.updates_SN - updates(rest, seen)) / _scale(seen)
    made_SN = -directions(rule, seen) / _scale(seen)
    square_S = (made_SN**2).sum(1)
    return rule.with_rates((made_SN * wanted_SN).sum(1) / np.where(square_S > 0, square_S, 1.0))


def solve(rule: Rule, seen: Observed, held: frozenset[str] = frozenset()) -> Rule:
    """The rule with constants that leave least, from those of `rule` on.

    Args:
      held: constants that stay; `decay` and `rates` are such names too.
    """
    damping, slow, miss = 1e-3, 0, misses(rule, seen)
    for _ in range(_MOST_STEPS):
        usual = max(float(np.median(np.abs(miss))), 1e-17)
        if usual < 2e-16:
            break
        weights = 1 / (1 + (miss.ravel() / (3 * usual)) ** 2)
        names, columns = _derivatives(rule, seen, miss, held)
        scale = np.sqrt((columns**2).sum(0)) + 1e-300
        columns = columns / scale * np.sqrt(weights)[:, None]
        target = -miss.ravel() * np.sqrt(weights)
        square, product = columns.T @ columns, columns.T @ target
        tried, left = rule, miss
        while damping < _MOST_DAMPING:
            step = np.linalg.lstsq(square + damping * np.eye(len(square)), product, rcond=1e-15)[0]
            tried = _moved(rule, names, step / scale)
            left = misses(tried, seen)
            if _cost(left, usual) < _cost(miss, usual):
                break
            damping *= 10
        if damping >= _MOST_DAMPING:
            break
        slow = slow + 1 if _cost(left, usual) > _SLOW * _cost(miss, usual) else 0
        rule, miss, damping = tried, left, max(damping / 30, 1e-14)
        if slow == _MOST_SLOW:
            break
    return rule


def _scale(seen: Observed) -> np.ndarray:
    # A tensor that hardly moves tells nothing beyond its rounding.
    floor_ST = np.maximum(np.maximum(seen.size_ST, 1e3 * seen.rounding_ST), 1e-100)
    return floor_ST[:, seen.tensor_N]


def _cost(miss: np.ndarray, usual: float) -> float:
    return float(np.log1p((miss / (3 * usual)) ** 2).sum())


def _derivatives(
    rule: Rule, seen: Observed, miss: np.ndarray, held: frozenset[str]
) -> tuple[list[tuple[str, int]], np.ndarray]:
    """Which unknown each column is of, and (S N, K) derivatives of what is left."""
    names: list[tuple[str, int]] = []
    columns: list[np.ndarray] = []
    for name in rule.form.constants:
        if name not in held:
            nudge = _nudge(name, rule, seen)
            moved = _moved(rule, [(name, 0)], np.array([nudge]))
            names.append((name, 0))
            columns.append(((misses(moved, seen) - miss) / nudge).ravel())
    if "decay" not in held:
        nudge = 1e-6 * (float(np.abs(rule.decay_T).max()) + 1e-3)
        moved = replace(rule, decay_T=rule.decay_T + nudge)
        change = (misses(moved, seen) - miss) / nudge
        for tensor in range(len(seen.sizes)):
            names.append(("decay", tensor))
            columns.append(np.where(seen.tensor_N == tensor, change, 0.0).ravel())
    if "rates" not in held:
        made = directions(rule, seen) / _scale(seen)
        for step in range(seen.num_steps):
            column = np.zeros_like(made)
            column[step] = made[step]
            names.append(("rates", step))
            columns.append(column.ravel())
    return names, np.stack(columns, axis=1)


def _nudge(name: str, rule: Rule, seen: Observed) -> float:
    if name == "eps":
        return 1e-5 * rule.values["eps"] + 1e-14
    if name == "clip_eps":
        return 1e-7 * float(np.median(seen.norms_S))
    return 1e-7


def _moved(rule: Rule, names: list[tuple[str, int]], step: np.ndarray) -> Rule:
    values, decay_T, rates_S = dict(rule.values), rule.decay_T.copy(), rule.rates_S.copy()
    for (name, index), change in zip(names, step, strict=True):
        if name == "decay":
            decay_T[index] += change
        elif name == "rates":
            rates_S[index] += change
        elif name in _GAPS:
            gap = np.clip(np.log1p(-values[name]) + change, np.log(_LEAST_GAP), 0.0)
            values[name] = float(-np.expm1(gap))
        elif name == "max_norm":
            values[name] = float(values[name] * np.exp(np.clip(change, -2, 2)))
        else:
            values[name] = max(0.0, float(values[name] + change))
    return replace(rule, values=values, decay_T=decay_T, rates_S=rates_S)
