"""Parameters that are rounded to a narrow dtype after each step, and the updates that are lost by it.

Must not: fit; the rule that is rounded is the other side's, or one that is given.
"""

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from parity.explain.update_rule.forms import Rule, updates
from parity.explain.update_rule.observed import Observed

_DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
_SHARE = 0.999
"""Of the elements must come out to the bit; the rest may be halves that rounding in float64 decided."""


@dataclass(frozen=True)
class Stored:
    """How well a rule, its parameters rounded after each step, gives the observed ones."""

    rule: Rule
    equal: float
    """Share of the elements, over all steps, that are equal to the bit."""
    lost: float
    """Share of the updates that are not zero and are rounded to nothing."""

    @property
    def reproduces(self) -> bool:
        """Whether it is the rule."""
        return self.equal >= _SHARE


def stored_as(seen: Observed) -> str:
    """The narrowest dtype that holds all parameters after each step; empty where none does."""
    after_SN = seen.params_SN[1:]
    for name, dtype in _DTYPES.items():
        if np.array_equal(after_SN, _rounded(after_SN, dtype)):
            return name
    return ""


def replayed(rule: Rule, dtype: str, seen: Observed) -> Stored:
    """The rule with rounding, on observed parameters and gradients."""
    update_SN = updates(rule, seen)
    before_SN = seen.params_SN[:-1]
    made_SN = _rounded(before_SN + update_SN, _DTYPES[dtype])
    moving = update_SN != 0
    # The first step may round what was not rounded before.
    lost = moving & (seen.params_SN[1:] == _rounded(before_SN, _DTYPES[dtype]))
    return Stored(
        replace(rule, stored=dtype),
        float((made_SN == seen.params_SN[1:]).mean()),
        float(lost.sum() / max(1, moving.sum())),
    )


def _rounded(values: np.ndarray, dtype: type) -> np.ndarray:
    return values.astype(dtype).astype(np.float64)
