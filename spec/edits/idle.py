"""Edits that have nothing to act on: a run with one would be judged as if it had a mistake, and has none.

An edit that gives a constant the value it had is none of them. Must not: know what an edit does.
"""

from collections.abc import Iterable, Mapping

from spec.data.rows import Batch
from spec.edits import data, weights
from spec.edits.catalogue import CATALOGUE
from spec.edits.decay import in_stack
from spec.edits.kinds import Edit
from spec.edits.step import Constants
from spec.edits.words import show
from spec.errors import RuleError
from spec.run import Problem
from spec.workloads.gpt import GptSizes

UNTURNED = "the model turns no queries and keys by position, and one order for both changes nothing"
_READ = {"gpt": ("layernorm_eps", "gelu_erf"), "mlp": ()}
"""By workload, the constants of `Constants` that its own model reads; no call of those is looked at."""


def why_idle(
    edit: Edit, problem: Problem, seen: Mapping[str, object] | None = None, rows: Batch | None = None
) -> str:
    """Why an edit changes nothing of a problem's step; empty where it acts, or where that is not known yet.

    Args:
      seen: what the side's model was seen to do where edits acted, by name; None before its first step.
      rows: of a batch; None where none was read.
    """
    kind, parameters = CATALOGUE[edit.name], problem.parameter_table()
    if kind.reach == "model":
        own = _READ.get(problem.workload)
        if own is not None and edit.name in Constants.__dataclass_fields__:
            return "" if edit.name in own else "the model has no such call"
        return "" if seen is None or edit.name in seen else "the model has no such call"
    if kind.reach == "weights" and not any(weights.fits(edit, row.name, row.shape) for row in parameters):
        return "the model has no such tensor"
    if edit.name == "rope_layout" and _keeps_products(edit, problem):
        return UNTURNED
    if kind.targeted and all(row.name != edit.target for row in parameters):
        return "the model has no such tensor"
    if edit.name == "decay_stacked" and not any(in_stack(row.name) for row in parameters):
        return "the model has no repeated layer"
    if edit.name in data.NAMES and rows is not None and not data.has_labels(rows):
        return "the batch has no labels by position"
    return ""


def _keeps_products(edit: Edit, problem: Problem) -> bool:
    """Whether queries and keys, reordered alike inside their heads, have the products that they had: where
    positions are learned. What a user's own model does with its positions is not known here."""
    sizes = problem.sizes
    return isinstance(sizes, GptSizes) and sizes.d_model // sizes.num_heads % abs(int(edit.value)) == 0


def refuse_idle(
    side: str,
    edits: Iterable[Edit],
    problem: Problem,
    seen: Mapping[str, object] | None = None,
    rows: Batch | None = None,
) -> None:
    """Refuses an edit that has nothing to act on, by what is known; see `why_idle`.

    Raises:
      RuleError: there is one.
    """
    for edit in edits:
        if why := why_idle(edit, problem, seen, rows):
            raise RuleError(
                "An edit changes something that the run computes.",
                f"{side}:{show(edit)}: {why}",
                "leave it out, or run a model that has one",
            )
