"""A case: one real report, what is run for it, and what the tool must say. Read from `pNN_name/case.toml`.

Must not: run anything. The tool knows nothing of cases; a case knows only its command line.
"""

import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ALL = tuple(f"P{number:02d}" for number in range(1, 36))
"""The reports that the corpus is about."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One input of a case: commands, and what they must find. What is left out is not asked for."""

    name: str = ""
    commands: tuple[str, ...]
    """What is typed after `parity`, in an empty folder; `{case}` is the case's folder."""
    exit_codes: tuple[int, ...] = ()
    """Of each command; empty for those that follow from `verdict` and the explanation."""
    verdict: str
    """SAME, DIFFERENT, INCONCLUSIVE, NOT_COMPARABLE, FAILED, or REFUSED where there is no result."""
    class_: str = ""
    """Of the first divergence."""
    first: str = ""
    """`phase/tensor` of the first divergence, or a pattern in which `*` is any text."""
    outcome: str = ""
    """Of the explanation: confirmed, not identified, in part, none, equal."""
    edits: tuple[str, ...] = ()
    """Confirmed, as `name=value` or `name@tensor=value`, in any order; no other may be."""
    tolerance: float = 1e-3
    """Relative, of an edit's value."""
    caught: tuple[str, ...] = ()
    """Kinds of edits that `parity power` must say would have been caught."""
    missed: tuple[str, ...] = ()
    """Kinds that it must say would not."""
    words: tuple[str, ...] = ()
    """Each must stand in what was printed or in the result."""
    absent: tuple[str, ...] = ()
    """None of them may."""
    miss: str = ""
    """Where the tool does less than the report asks for: what, and why. The fields above are then what it
    does today."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One report."""

    id: str
    folder: Path = field(default=HERE)
    sources: tuple[str, ...]
    symptom: str
    """What users saw, in a line."""
    must: str
    """What a good tool says, in a line."""
    variants: tuple[Variant, ...]


def read(folder: Path) -> Case:
    """The case of a folder.

    Raises:
      ValueError: an unknown or missing field, named with its file.
    """
    path = folder / "case.toml"
    content = tomllib.loads(path.read_text("ascii"))
    try:
        variants = tuple(_made(Variant, one) for one in content.pop("variant"))
        case: Case = _made(Case, content | {"folder": folder, "variants": variants})
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not re.fullmatch(rf"{case.id.lower()}_[a-z0-9_]+", folder.name):
        raise ValueError(f"{path}: {case.id} does not belong in this folder")
    return case


def read_all() -> dict[str, Case]:
    """Every case by its id."""
    return {case.id: case for case in map(read, sorted(path.parent for path in HERE.glob("p*/case.toml")))}


def left_out() -> dict[str, str]:
    """Reports that have no case, and why."""
    reasons: dict[str, str] = tomllib.loads((HERE / "left_out.toml").read_text("ascii"))
    return reasons


def _made(kind: Any, content: dict[str, Any]) -> Any:
    names = {one.name for one in fields(kind)}
    given = {name + "_" if name == "class" else name: value for name, value in content.items()}
    if unknown := set(given) - names:
        raise TypeError(f"unknown: {', '.join(sorted(unknown))}")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})
