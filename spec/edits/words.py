"""Edits as they are written on a command line, and which side can make which.

Must not: know what an edit does.
"""

import math
import re

from spec.edits.catalogue import CATALOGUE
from spec.edits.kinds import Edit, Kind
from spec.errors import RuleError, nearest


def why_not(kind: Kind, side: str, *, pair: bool) -> str:
    """Why a side cannot make an edit of this kind; empty where it can."""
    if side == "torch":
        return kind.torch
    return kind.jax or (kind.jax_pair if pair else "")


def show(edit: Edit) -> str:
    """`name=value` or `name@tensor=value`, as `parse` reads it."""
    where = f"@{edit.target}" if edit.target else ""
    return f"{edit.name}{where}={edit.value:.12g}"


def tell(edit: Edit) -> str:
    """What the edited side does, in words, with the edit's value."""
    words = CATALOGUE[edit.name].what.replace("|value|", f"{abs(edit.value):g}")
    return re.sub(r"\bvalue\b", f"{edit.value:g}", words)


def parse(text: str) -> Edit:
    """An edit from `name=value`, or `name@tensor=value` where it is about one tensor.

    Raises:
      RuleError: an unknown name, a missing tensor, or a value that its constant cannot take.
    """
    words, _, value = text.partition("=")
    name, _, target = words.partition("@")
    if name not in CATALOGUE:
        mend = f"{nearest(name, CATALOGUE)}known: {', '.join(CATALOGUE)}"
        raise RuleError("An edit is one of the catalogue's.", repr(name), mend)
    kind = CATALOGUE[name]
    if bool(target) != kind.targeted:
        form = f"{name}@TENSOR=VALUE" if kind.targeted else f"{name}=VALUE"
        raise RuleError("An edit names a tensor where it is about one, and only there.", repr(text), form)
    try:
        edit = Edit(name=name, value=float(value), target=target)
    except ValueError:
        raise RuleError("An edit is written name=number.", repr(text), f"for example {name}=1e-6") from None
    meant = {int: "a whole number", bool: "0 or 1", float: "a finite number"}[kind.number]
    if not math.isfinite(edit.value) or kind.number(edit.value) != edit.value:
        raise RuleError("An edit's value is one that its constant can take.", repr(text), f"give {meant}")
    if not kind.scale and kind.number is not bool and edit.value not in kind.values:
        known = ", ".join(f"{one:g}" for one in kind.values)
        raise RuleError("An edit's value is one that its constant can take.", repr(text), f"give {known}")
    if edit.value not in kind.within:
        tried = ", ".join(f"{one:g}" for one in kind.values)
        raise RuleError(f"{name} is {kind.within}.", repr(text), f"for example {tried}")
    return edit


def refuse(edit: Edit, side: str, *, pair: bool) -> None:
    """Refuses an edit that a side cannot make.

    Raises:
      RuleError: with the side's reason.
    """
    reason = why_not(CATALOGUE[edit.name], side, pair=pair)
    if reason:
        raise RuleError(
            f"An edit is one that the {side} side can make.",
            f"{side}:{show(edit)}: {reason}",
            f"change it in the {side} side's file" if pair else "plant it on the other side",
        )
