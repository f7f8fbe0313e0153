"""Puts the sections of the page together and writes `report.html`: one file, nothing fetched, read without
a script.

Everything that a run says (names, paths, words of errors, command lines) reaches the page through Jinja2 with
autoescape on, or through `charts.svg`, which escapes too. Must not: judge or measure.
"""

from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from parity import folders
from parity.report import against_lines
from parity.report.page import (
    capture,
    causes,
    conditions,
    curves,
    glance,
    manifests,
    seeds,
    speed,
    sweep,
    tensors,
    timeline,
    warned,
    words,
)
from parity.report.page.folder import RunFolder, read_object
from parity.report.result import Numerics, Result, read_result
from spec import record

NAME = "report.html"
_TITLES = {
    "power": "What this run would have caught",
    "pair": "How the pair's tensors correspond",
    "handoff": "The run that changed sides",
}
_DRAWN = {
    "schema_version", "command", "verdict", "exit_code", "reasons", "runs", "curves", "numerics",
    "comparisons", "equivalence", "explanation", "speed", "capture", "bench", "launches", "seconds",
    "unmeasured", "warnings", "sweep",
}  # fmt: skip
"""Fields of the result that have a section; what is added later is shown as it stands."""


def write(folder: Path) -> Path:
    """Draws the page of a run folder from what is in it.

    Raises:
      RuleError: the folder holds no result that can be read.
    """
    path = folder / folders.RESULT
    page = folder / NAME
    record.write_text(page, render(read_result(path), read_object(path), RunFolder(folder)))
    return page


def render(result: Result, raw: dict[str, Any], folder: RunFolder) -> str:
    """The page.

    Args:
      raw: the result as it stands in JSON, with fields that this version does not know.
      folder: where the passes are.
    """
    sections = {
        "curves": curves.section(result, folder),
        "speed": speed.section(result, folder),
        "timeline": timeline.section(folder),
        "tensors": tensors.section(result, folder),
        "manifests": manifests.section(folder),
    }
    return (
        _environment()
        .get_template("page.html")
        .render(
            style=_style(),
            is_flat=_is_flat,
            result=result,
            words=words,
            sentence=words.verdict_sentence(result),
            mark=words.MARKS.get(result.verdict or "", "\u00b7"),
            meaning=words.EXIT_CODES.get(result.exit_code, "not a code of this version"),
            notes=words.other_reasons(result),
            glance=glance.facts(result),
            seeds=seeds.section(result),
            causes=causes.section(result),
            sweep=sweep.section(result),
            warnings=warned.rows(result),
            missing=[(name, one.why_not) for name, one in sections.items() if one.why_not],
            **sections,
            capture=capture.section(result, folder),
            conditions=conditions.section(result, folder),
            blocks=_blocks(raw | _against(result, raw)),
        )
    )


def _against(result: Result, raw: dict[str, Any]) -> dict[str, Any]:
    """The comparison with a saved run, its figures a line each as on the console."""
    if result.against is None:
        return {}
    heads = ("figure", "saved", "now", "now / saved", "limit")
    lines = [dict(zip(heads, line, strict=True)) for line in against_lines.lines(result.against)]
    return {"against": raw["against"] | {"changes": lines}}


def _blocks(raw: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Parts of the result without a section of their own: an id, a title, the content."""
    numerics = raw.get("numerics") or {}
    found = [(name, value) for name, value in raw.items() if name not in _DRAWN]
    known = {item.encode_name for item in msgspec.structs.fields(Numerics)}
    found += [(name, value) for name, value in numerics.items() if name not in known]
    return [
        (f"block-{number}", _TITLES.get(name, name.replace("_", " ").capitalize()), value)
        for number, (name, value) in enumerate(found)
        if value not in (None, [], {}, "")
    ]


def _style() -> Markup:
    """The style sheet, as it stands: our own file, and a style element knows no entities."""
    return Markup(Path(__file__).with_name("style.css").read_text("utf-8"))


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("parity.report.page", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def _is_flat(rows: list[Any]) -> bool:
    """Whether records are a table: every value fits in a cell."""
    return all(isinstance(row, dict) and all(map(_fits, row.values())) for row in rows)


def _fits(value: Any) -> bool:
    """Whether it is a word, a number, or two or three of them."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return len(inner) <= 3 and not any(isinstance(one, dict | list) for one in inner)
