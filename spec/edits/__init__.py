"""The catalogue of edits, as data: named, small, real changes to the step of one side.

An edit makes a convention differ on purpose, so that a judge can be tested and a suspected cause confirmed.
The sides never see an edit: they read every constant of the step from `Constants`, and an edit is another
value there.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from spec.errors import RuleError
from spec.run import Problem
from spec.schedule import step_table
from spec.workloads import gpt


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One change of one constant or form."""

    name: str
    value: float


CATALOGUE = {
    "clip_eps": "clip by max_norm / (norm + value) instead of max_norm / norm",
    "adam_eps": "AdamW's eps is value",
    "weight_decay": "AdamW's decay is value",
    "schedule_offset": "the learning rate is read value steps later",
    "layernorm_eps": "every LayerNorm's eps is value",
    "gelu_erf": "GELU is the erf form (value 1) instead of the tanh form (value 0)",
    "loss_scale": "the local loss and its gradients are multiplied by value",
}


OF_MODELS = ("layernorm_eps", "gelu_erf")
"""Edits of this project's own models; the file of a user's model has its own constants."""


def parse(text: str) -> Edit:
    """An edit from `name=value`.

    Raises:
      RuleError: an unknown name or a value that is no number.
    """
    name, _, value = text.partition("=")
    if name not in CATALOGUE:
        raise RuleError("An edit is one of the catalogue's.", repr(name), f"known: {', '.join(CATALOGUE)}")
    try:
        edit = Edit(name=name, value=float(value))
    except ValueError:
        raise RuleError("An edit is written name=number.", repr(text), f"for example {name}=1e-6") from None
    kinds = {"schedule_offset": (int, "a whole number"), "gelu_erf": (bool, "0 or 1")}
    kind, meant = kinds.get(name, (float, "a finite number"))
    if not math.isfinite(edit.value) or kind(edit.value) != edit.value:
        raise RuleError("An edit's value is one that its constant can take.", repr(text), f"give {meant}")
    return edit


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Every constant and form of the step that an edit can reach; by default the problem's own."""

    beta1: float
    beta2: float
    adam_eps: float
    weight_decay: float
    max_norm: float | None
    clip_eps: float = 0.0
    schedule_offset: int = 0
    layernorm_eps: float = gpt.LAYER_NORM_EPS
    gelu_erf: bool = False
    loss_scale: float = 1.0


def constants(problem: Problem, edits: Iterable[Edit] = ()) -> Constants:
    """The constants of a problem, edited."""
    optimizer = problem.optimizer
    result = Constants(
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        adam_eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        max_norm=optimizer.max_norm,
    )
    for edit in edits:
        assert edit.name in CATALOGUE, edit.name
        kind = type(getattr(result, edit.name))
        result = replace(result, **{edit.name: kind(edit.value)})
    return result


def device_table(problem: Problem, chosen: Constants) -> np.ndarray:
    """The step table of a run, shape [steps, 3], in the dtype of the moments; an edit may shift it."""
    table = step_table(problem.schedule, chosen.beta1, chosen.beta2, problem.steps, problem.profile.moments)
    rows = np.clip(np.arange(problem.steps) + chosen.schedule_offset, 0, problem.steps - 1)
    table[:, 0] = table[rows, 0]
    return table
