"""Edits of which parameters decay: one tensor, or all of the layers that a model repeats.

They act on the parameter table that a side lays its memory out by. Must not: touch the problem's own table.
"""

from collections.abc import Iterable
from dataclasses import replace

from spec.edits.kinds import Edit
from spec.params import ParamSpec

NAMES = ("decay_tensor", "decay_stacked")
"""The kinds of edits that are made here."""


def edited_table(edits: Iterable[Edit], table: tuple[ParamSpec, ...]) -> tuple[ParamSpec, ...]:
    """The table as the edited side reads it; the same where no edit fits. The last edit of a kind counts."""
    chosen = {(edit.name, edit.target): bool(edit.value) for edit in edits if edit.name in NAMES}
    if not chosen:
        return table
    stacked = chosen.get(("decay_stacked", ""), False)
    return tuple(
        replace(
            row,
            decayed=chosen.get(("decay_tensor", row.name), row.decayed or (stacked and in_stack(row.name))),
        )
        for row in table
    )


def in_stack(name: str) -> bool:
    """Whether a tensor is of a repeated layer: layers of a list are numbered."""
    return any(part.isdigit() for part in name.split("."))
