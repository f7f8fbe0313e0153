"""The page's manifests: what both sides said of themselves, side by side, differences marked.

Long lists, such as a hash for every tensor, stand as one line with the names that differ. Must not: judge;
which difference matters is the gate's and the evidence's to say.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parity.report.page.folder import Pass, RunFolder
from spec.errors import few

_LONG = 14
"""Entries of one place beyond which it is one line."""
_TOLD = 4
_LEFT_OUT = {"side", "capture", "reasons"}
"""Shown elsewhere on the page."""


@dataclass(frozen=True)
class Row:
    """One entry of the manifests; a side without it has a dash."""

    name: str
    values: list[str]


@dataclass(frozen=True)
class Section:
    """What the page shows of the manifests."""

    heads: list[str]
    different: list[Row]
    alone: list[Row]
    """Entries that one side alone has."""
    equal: list[Row]
    why_not: str


def section(folder: RunFolder) -> Section:
    """Both sides' manifests of their run passes, or of time passes where there are no others."""
    found = [one for side in ("torch", "jax") if (one := _said(folder, side)) is not None]
    if not found:
        return Section([], [], [], [], "no side wrote a manifest")
    flat = [_flat(one.manifest) for one in found]
    names = list(dict.fromkeys(name for entries in flat for name in entries))
    groups: dict[str, list[Row]] = {"different": [], "alone": [], "equal": []}
    for name in sorted(names, key=lambda name: name.startswith("environment")):
        values = [entries.get(name, _ABSENT) for entries in flat]
        apart = any(value != values[0] for value in values)
        group = "alone" if _ABSENT in values else "different" if apart else "equal"
        groups[group].append(Row(name, _told(values)))
    return Section(heads=[f"{one.side}, {one.folder.name}" for one in found], **groups, why_not="")


def _said(folder: RunFolder, side: str) -> Pass | None:
    for purpose in ("run", "time"):
        one = folder.own(purpose, side)
        if one is not None and one.manifest:
            return one
    return None


def _flat(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Every value under the names that lead to it; long collections whole."""
    found: dict[str, Any] = {}
    reasons = manifest.get("reasons") or {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            value = {
                str(item.get("name", number)): _in_a_line(item, name, reasons)
                for number, item in enumerate(value)
            }
        if value is None or value in ([], {}):
            value = f"not known: {reasons[name]}" if name in reasons else "none"
        if isinstance(value, dict) and value and not _is_long(value):
            for key, item in value.items():
                walk(f"{name}.{key}" if name else key, item)
        else:
            found[name] = value

    for key, value in manifest.items():
        if key not in _LEFT_OUT:
            walk(key, value)
    found.pop("environment.argv", None)  # the worker's own; the command of the run has a place of its own
    return found


def _in_a_line(item: Mapping[str, Any], where: str, reasons: Mapping[str, str]) -> str:
    """Its values by name; one that is null for a reason as not known."""
    return ", ".join(
        f"{key} not known: {reasons[f'{where}.{key}']}"
        if value is None and f"{where}.{key}" in reasons
        else f"{key} {_words(value)}"
        for key, value in item.items()
        if key != "name"
    )


def _is_long(value: Any) -> bool:
    """Whether it is a list of many alike, such as a hash for every tensor."""
    return isinstance(value, dict) and len(value) > _LONG and len({type(one) for one in value.values()}) == 1


_ABSENT = object()


def _told(values: Sequence[Any]) -> list[str]:
    long = [value for value in values if _is_long(value)]
    if len(long) == len(values) > 1:
        apart = [
            key
            for key in dict.fromkeys(key for value in long for key in value)
            if any(value.get(key) != long[0].get(key) for value in long)
        ]
        words = f"; not the same in {few(apart, _TOLD, ', ')}" if apart else ""
        return [f"{len(value)} entries{words}" for value in long]
    return [_words(value) for value in values]


def _words(value: Any) -> str:
    """A value as it stands in a cell."""
    if value is _ABSENT:
        return "\u2013"
    if isinstance(value, str):
        return value or "empty"
    if _is_long(value):
        return f"{len(value)} entries"
    if value is None:
        return "none"
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return ", ".join(str(item) for item in value)
    return json.dumps(value)
