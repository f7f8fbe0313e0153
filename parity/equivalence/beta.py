"""The incomplete beta function, and what follows from it: Student's t, and exact bounds of a proportion.

scipy has all of it, but comes with a framework only, which a referee does without; the tests compare the two.
Must not: know what is tested.
"""

import math
from collections.abc import Callable
from functools import cache

_TERMS = 10_000
_ENOUGH = 1e-16
_TINY = 1e-300


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), to about 1e-13; a, b > 0 and x in [0, 1].

    The continued fraction of DLMF 8.17.22, evaluated from the front (Lentz); it converges fast on the side of
    the mean that is taken.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(scale) / a * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """1 / (1 + d1 / (1 + d2 / (1 + ...)))."""
    upper, lower = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = lower
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            upper, lower = _away(1 + term / upper), 1 / _away(1 + term * lower)
            value *= upper * lower
        if abs(upper * lower - 1) < _ENOUGH:
            break
    return value


def _away(value: float) -> float:
    """The value, kept away from zero."""
    return value if abs(value) > _TINY else _TINY


def student_cdf(t: float, df: float) -> float:
    """The probability that Student's t with `df` degrees of freedom is at most `t`."""
    tail = incomplete_beta(df / 2, 0.5, df / (df + t * t)) / 2
    return 1 - tail if t > 0 else tail


@cache
def student_quantile(p: float, df: float) -> float:
    """The t below which Student's t lies with probability `p`, in (0, 1)."""
    if p < 0.5:
        return -student_quantile(1 - p, df)
    high = 1.0
    while student_cdf(high, df) < p:
        high *= 2
    return _solved(lambda t: student_cdf(t, df), p, 0.0, high)


def proportion_bounds(found: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact (Clopper-Pearson) interval of a proportion of which `found` of `of` were seen."""
    tail = (1 - confidence) / 2
    low, high = 0.0, 1.0
    if found > 0:
        low = _solved(lambda p: incomplete_beta(found, of - found + 1, p), tail, 0.0, 1.0)
    if found < of:
        high = _solved(lambda p: incomplete_beta(found + 1, of - found, p), 1 - tail, 0.0, 1.0)
    return low, high


def _solved(rising: Callable[[float], float], value: float, low: float, high: float) -> float:
    """Where a rising function takes a value, by halving until nothing lies between."""
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        low, high = (middle, high) if rising(middle) < value else (low, middle)
