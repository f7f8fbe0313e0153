"""Edits of the rows that a side's step is given: labels shifted once more.

The bytes that are compared and hashed are those before the edit: it is a mistake of the side, not of the
data.
"""

from collections.abc import Iterable

import numpy as np

from spec.data.rows import Batch
from spec.edits.kinds import Edit
from spec.workloads.gpt import IGNORE_LABEL

_IGNORED_BY_TORCH = -100
"""The label that losses of torch's leave out unless told otherwise."""
_LABELS = ("labels", "label", "targets", "target", "y")
NAMES = ("label_shift",)
"""The kinds of edits that are made here."""


def edited_rows(edits: Iterable[Edit], rows: Batch, workload: str) -> Batch:
    """The rows as the edited side reads them; the same where no edit fits. The last edit counts."""
    steps = {edit.name: int(edit.value) for edit in edits}.get("label_shift", 0)
    if not steps:
        return rows
    name = _labels(rows)
    if name is None:
        return rows
    ignored = IGNORE_LABEL if workload == "gpt" else _IGNORED_BY_TORCH
    return rows | {name: _shifted(rows[name], steps, min(ignored, int(rows[name].min())))}


def has_labels(rows: Batch) -> bool:
    """Whether rows have labels by position."""
    return _labels(rows) is not None


def _labels(rows: Batch) -> str | None:
    return next((name for name in _LABELS if _are_labels(rows, name)), None)


def _are_labels(rows: Batch, name: str) -> bool:
    return name in rows and rows[name].ndim == 2 and rows[name].dtype.kind == "i"


def _shifted(labels_BT: np.ndarray, steps: int, ignored: int) -> np.ndarray:
    """Each position takes the label `steps` later; positions beyond an end take no label."""
    result_BT = np.full_like(labels_BT, ignored)
    if steps > 0:
        result_BT[:, :-steps] = labels_BT[:, steps:]
    else:
        result_BT[:, -steps:] = labels_BT[:, :steps]
    return result_BT
