"""The update rules that are told apart, and what each makes of observed gradients, in float64.

    update = -lr * direction(gradients so far) - decay's share of the parameters

Formulas are those of torch.optim and optax; the gradients are given, so nothing here knows a model. Must not:
fit.

Legend: S steps, N elements of all tensors, T tensors.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from parity.explain.update_rule.observed import Observed

Kind = Literal["sgd", "adam"]
DecayForm = Literal["decoupled", "l2", "without lr"]
Place = Literal["after", "before", "inside"]
Correction = Literal["on", "frozen", "off"]


@dataclass(frozen=True, kw_only=True)
class Form:
    """One member of the family, without its constants."""

    kind: Kind
    decay: DecayForm = "decoupled"
    """Added to the update and multiplied by lr; added to the gradient; or taken off without lr."""
    nesterov: bool = False
    place: Place = "after"
    """Where eps stands: after the bias correction, before it, or inside the root."""
    correction: Correction = "on"
    """`frozen`: that of the first step in all steps."""
    clips: bool = False
    """Whether the optimizer scales gradients by min(1, max_norm / (norm + clip_eps)) first."""

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of its constants, but for learning rates and decay."""
        own = ("momentum",) if self.kind == "sgd" else ("beta1", "beta2", "eps")
        return (*own, "max_norm", "clip_eps") if self.clips else own


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A form with constants: all that it takes to make the updates."""

    form: Form
    values: dict[str, float]
    """By the names of `Form.constants`."""
    rates_S: np.ndarray
    """Learning rate of each step."""
    decay_T: np.ndarray
    """Decay of each tensor; 0 where none."""
    stored: str = ""
    """Dtype that parameters are rounded to after each step; empty for as they are computed."""
    rounded: frozenset[str] = field(default_factory=frozenset)
    """Constants whose written form was found."""

    def with_rates(self, rates_S: np.ndarray) -> "Rule":
        """The same at other learning rates."""
        return replace(self, rates_S=rates_S)


def updates(rule: Rule, seen: Observed) -> np.ndarray:
    """(S, N): what the rule adds to the parameters in every step, from the observed ones before it."""
    made_SN = -rule.rates_S[:, None] * directions(rule, seen)
    if rule.form.decay == "without lr":
        made_SN = made_SN - rule.decay_T[seen.tensor_N] * seen.params_SN[:-1]
    return made_SN


def directions(rule: Rule, seen: Observed) -> np.ndarray:
    """(S, N): the update over -lr; of decay without lr nothing is in it."""
    form, values = rule.form, rule.values
    decayed_SN = rule.decay_T[seen.tensor_N] * seen.params_SN[:-1]
    grads_SN = seen.grads_SN * clip_ratios(rule, seen)[:, None]
    if form.decay == "l2":
        grads_SN = grads_SN + decayed_SN
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        made_SN = _sgd(form, values, grads_SN) if form.kind == "sgd" else _adam(form, values, grads_SN)
    made_SN = np.nan_to_num(made_SN, nan=0.0, posinf=0.0, neginf=0.0)
    return made_SN + decayed_SN if form.decay == "decoupled" else made_SN


def clip_ratios(rule: Rule, seen: Observed) -> np.ndarray:
    """(S,): what the optimizer itself scales all gradients of a step by."""
    if not rule.form.clips:
        return np.ones(seen.num_steps)
    return np.minimum(1.0, rule.values["max_norm"] / (seen.norms_S + rule.values["clip_eps"]))


def _sgd(form: Form, values: dict[str, float], grads_SN: np.ndarray) -> np.ndarray:
    momentum, trace_N = values["momentum"], np.zeros(grads_SN.shape[1])
    made_SN = np.empty_like(grads_SN)
    for step, grad_N in enumerate(grads_SN):
        trace_N = momentum * trace_N + grad_N
        made_SN[step] = grad_N + momentum * trace_N if form.nesterov else trace_N
    return made_SN


def _adam(form: Form, values: dict[str, float], grads_SN: np.ndarray) -> np.ndarray:
    beta1, beta2, eps = values["beta1"], values["beta2"], values["eps"]
    m_N, v_N = np.zeros(grads_SN.shape[1]), np.zeros(grads_SN.shape[1])
    made_SN = np.empty_like(grads_SN)
    for step, grad_N in enumerate(grads_SN):
        m_N = beta1 * m_N + (1 - beta1) * grad_N
        v_N = beta2 * v_N + (1 - beta2) * grad_N**2
        correction1, correction2 = _corrections(form, beta1, beta2, step)
        if form.place == "before":
            denominator_N = (np.sqrt(v_N) + eps) / np.sqrt(correction2)
        elif form.place == "inside":
            denominator_N = np.sqrt(v_N / correction2 + eps)
        else:
            denominator_N = np.sqrt(v_N / correction2) + eps
        made_SN[step] = m_N / correction1 / denominator_N
    return made_SN


def _corrections(form: Form, beta1: float, beta2: float, step: int) -> tuple[float, float]:
    if form.correction == "off":
        return 1.0, 1.0
    power = 1 if form.correction == "frozen" else step + 1
    return 1 - beta1**power, 1 - beta2**power
