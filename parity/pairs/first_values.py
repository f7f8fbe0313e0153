"""How the first values of two sides differ that each made their own: distribution by distribution.

Two sides that initialise themselves cannot train alike, whatever else is right. What their defaults draw is
told before anything is trained. Must not: read files.
"""

import math
from collections.abc import Iterator

import numpy as np

from spec.weights import Tensors

_SCHEMES = {
    1 / math.sqrt(3): "U(+-1/sqrt(fan in)), Kaiming with a = sqrt(5)",
    1.0: "LeCun",
    math.sqrt(2): "He (Kaiming for ReLU)",
}
"""By standard deviation times sqrt(fan in)."""
_NEAR = 0.08
_SURE = 1e-3
"""Two samples are of different distributions where so large a distance is less likely than this for one."""
ADVICE = (
    "first values: give both sides one state, init='torch' or init='jax' in pair.py; two that initialise "
    "themselves never train alike"
)


def refusals(torch: Tensors, jax: Tensors) -> list[str]:
    """A line for each parameter that differs, then what to do; empty where all are equal to the bit.

    Args:
      torch, jax: `param/NAME` under the canonical names, in torch's layout.
    """
    found = list(_differing(torch, jax))
    return [*found, ADVICE] if found else []


def _differing(torch: Tensors, jax: Tensors) -> Iterator[str]:
    for key, values in torch.items():
        phase, _, name = key.partition("/")
        if phase == "param" and not np.array_equal(values, jax[key]):
            yield (
                f"first values of {name}: torch {_words(values)}; jax {_words(jax[key])}: "
                f"{_verdict(values, jax[key])}"
            )


def _verdict(one: np.ndarray, other: np.ndarray) -> str:
    if not np.ptp(one) or not np.ptp(other):
        return "another distribution"
    chance = same_distribution(one, other)
    words = "another distribution" if chance < _SURE else "other draws, maybe of one distribution"
    return f"{words} (Kolmogorov-Smirnov p = {chance:.1e})"


def same_distribution(one: np.ndarray, other: np.ndarray) -> float:
    """Probability that two samples of one distribution lie as far apart as these: the asymptotic two-sample
    Kolmogorov-Smirnov test, with Stephens' correction for small samples."""
    a, b = (np.sort(np.asarray(values, np.float64).ravel()) for values in (one, other))
    every = np.concatenate([a, b])
    far = np.abs(
        np.searchsorted(a, every, side="right") / a.size - np.searchsorted(b, every, side="right") / b.size
    ).max()
    size = math.sqrt(a.size * b.size / (a.size + b.size))
    x = (size + 0.12 + 0.11 / size) * far
    if x < 0.2:
        return 1.0
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, sum(terms)))


def _words(values: np.ndarray) -> str:
    """`sd 0.167, uniform, U(...)`; `zeros`."""
    if values.size and not np.ptp(values):
        return {0.0: "zeros", 1.0: "ones"}.get(float(values.flat[0]), f"all {values.flat[0]:g}")
    wide = np.asarray(values, np.float64)
    sd = float(wide.std())
    if wide.size < 64:
        return f"sd {sd:.2g}, mean {wide.mean():.2g}"
    # 1.8 of a uniform distribution, 2.4 of a normal one cut off at two deviations, 3 of a whole one.
    peaked = float(np.mean((wide - wide.mean()) ** 4)) / sd**4
    words = [f"sd {sd:.2g}", "uniform" if peaked < 2.1 else "cut-off normal" if peaked < 2.7 else "normal"]
    if wide.ndim > 1:
        fan_in = wide[0].size
        words += [name for share, name in _SCHEMES.items() if abs(sd * math.sqrt(fan_in) / share - 1) < _NEAR]
    return ", ".join(words)
