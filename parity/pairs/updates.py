"""Whether two optimizers of users' own are one rule, from what each made of equal parameters and gradients.

Said before anything is trained; a run says it again, and `parity explain` names the constants. Must not:
start anything.
"""

from pathlib import Path

import numpy as np

from parity.judge.measures import rms
from spec.pairs.updates import FACTORS, UPDATES
from spec.precision import find_profile
from spec.state import of_phase
from spec.weights import load_tensors

_ONE_RULE = {"f64": 1e-5, "strict": 1e-2}
"""Updates of one rule are that near, relative to their RMS: optax computes some factors in float32, and the
difference of two float32 parameters has few digits."""
_ROUNDINGS = 4.0
"""Of the parameters themselves, which an update is read from."""
_PARALLEL = 1e-3
"""Decay alone is left where a change is the parameter times one number, but for this share."""


def told(torch: Path, jax: Path, precision: str) -> list[str]:
    """How they differ, in a sentence at most; nothing where they do not.

    Args:
      torch, jax: folders in which the sides described themselves.
      precision: the profile under which they did.
    """
    one, other = load_tensors(torch / UPDATES), load_tensors(jax / UPDATES)
    params = of_phase(one, "param")
    for kind, words in (("undriven", "where gradients are zero"), ("driven", "on equal gradients")):
        for number in range(len(FACTORS)):
            a, b = (dict(of_phase(of, f"{kind}/{number}")) for of in (one, other))
            far = {name: _apart(params[name], a[name], b[name], precision) for name in a}
            apart = {name: size for name, size in far.items() if size > _ONE_RULE[precision]}
            if apart:
                worst = max(apart, key=lambda name: apart[name])
                what = _decay(worst, params[worst], a[worst], b[worst])
                what = what or f"update {number} of {worst}, counted from 0, {_far(apart[worst])}"
                many = f"; {len(apart)} of {len(a)} tensors differ" if len(a) > 1 else ""
                return [f"own optimizers are not one rule: {words}, {what}{many}"]
    return []


def _apart(param: np.ndarray, a: np.ndarray, b: np.ndarray, precision: str) -> float:
    """RMS of the difference over the larger of both; 0 for what rounding the parameter can be, infinite where
    an element is a number on one side alone."""
    if (np.isfinite(a) != np.isfinite(b)).any():
        return float("inf")
    rounding = _ROUNDINGS * find_profile(precision).unit_roundoff * rms(param)
    with np.errstate(invalid="ignore"):
        difference = rms(a - b)
    return 0.0 if difference <= rounding else difference / max(rms(a), rms(b))


def _far(size: float) -> str:
    return f"is {size:.1e} of itself apart" if np.isfinite(size) else "is not finite on one side alone"


def _decay(name: str, param: np.ndarray, *changes: np.ndarray) -> str:
    """What an update takes away of a parameter on each side; empty where that is not all it does."""
    shares = []
    if not all(np.isfinite(change).all() for change in changes):
        return ""
    for change in changes:
        share = -float(change @ param / (param @ param)) if change.any() else 0.0
        if np.abs(change + share * param).max() > _PARALLEL * abs(share) * np.abs(param).max():
            return ""
        shares.append(share)
    took = f"an update takes away {shares[0]:.3g} of {name} in torch, {shares[1]:.3g} in jax"
    return f"{took} (learning rate times weight decay)"
