"""Edits of the rows that a side's step is given: labels shifted once more.

The bytes that are compared and hashed are those before the edit: it is a mistake of the side, not of the
data.
"""

from collections.abc import Iterable

import numpy as np

from spec.data.rows import Batch
from spec.edits.kinds import Edit
from spec.workloads.gpt import IGNORE_LABEL

_LABELS = ("labels", "label", "targets", "target", "y")
NAMES = ("label_shift",)
"""The kinds of edits that are made here."""


def edited_rows(edits: Iterable[Edit], rows: Batch) -> Batch:
    """The rows as the edited side reads them; the same arrays where no edit fits them."""
    for edit in edits:
        name = next((name for name in _LABELS if _are_labels(rows, name)), None)
        if edit.name == "label_shift" and name is not None:
            rows = rows | {name: _shifted(rows[name], int(edit.value))}
    return rows


def _are_labels(rows: Batch, name: str) -> bool:
    return name in rows and rows[name].ndim == 2 and rows[name].dtype.kind == "i"


def _shifted(labels_BT: np.ndarray, steps: int) -> np.ndarray:
    """Each position takes the label `steps` later; positions beyond an end take no label."""
    ignored = min(IGNORE_LABEL, int(labels_BT.min()))
    result_BT = np.full_like(labels_BT, ignored)
    if steps > 0:
        result_BT[:, :-steps] = labels_BT[:, steps:]
    elif steps < 0:
        result_BT[:, -steps:] = labels_BT[:, :steps]
    else:
        result_BT = labels_BT
    return result_BT
