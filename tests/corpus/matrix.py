"""The confusion matrix over stored findings: what was expected against what was found, as Markdown.

Must not: run anything, or count what the tool does less than its report asks for as a pass.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.corpus.case import ALL, Case, Variant

_NO_CAUSE = "none named"
Rows = list[tuple[Case, Variant, dict[str, Any]]]


def markdown(
    cases: dict[str, Case], found: dict[tuple[str, str], dict[str, Any]], reasons: dict[str, str]
) -> str:
    """Two matrices, a table with a row for each variant, and what is not there."""
    rows = [
        (case, variant, found[case.id, variant.name])
        for case in cases.values()
        for variant in case.variants
        if (case.id, variant.name) in found
    ]
    counts = Counter(standing(variant, one) for _, variant, one in rows)
    lines = [
        f"{len(rows)} variants of {len({case.id for case, _, _ in rows})} reports: {counts['pass']} pass, "
        f"{counts['MISS']} MISS, {counts['FAIL']} FAIL.",
        "",
        "MISS: the tool is honest there but does less than the report asks for. FAIL: it does not do what "
        "the case expects.",
        "",
        "### Verdict and class",
        "",
        *_matrix(
            [(_verdict(v.verdict, v.class_), _verdict(one["verdict"], one["class_"])) for _, v, one in rows]
        ),
        "",
        "### Cause",
        "",
        *_matrix(
            [(_causes(v.edits), _causes(one["edits"])) for _, v, one in rows if v.edits or one["edits"]]
        ),
        "",
        "### Every variant",
        "",
        *_every(rows),
    ]
    absent = [name for name in ALL if not any(case.id == name for case, _, _ in rows)]
    if absent:
        lines += [
            "",
            "Not run: " + "; ".join(f"{name}: {reasons.get(name, 'no finding stored')}" for name in absent),
        ]
    return "\n".join(lines) + "\n"


def standing(variant: Variant, found: dict[str, Any]) -> str:
    """`pass`, `MISS` or `FAIL`."""
    if found["wrong"]:
        return "FAIL"
    return "MISS" if variant.miss else "pass"


def _verdict(verdict: str, kind: str) -> str:
    return f"{verdict} {kind}".strip()


def _first(found: dict[str, Any]) -> str:
    """Where the run parts, and where its explanation begins, which sees activations in every run."""
    traced = re.search(r"1\. first difference: (.+?) \(rms", found["printed"])
    words = [found["first"].rstrip("/")] + ([f"explained from {traced[1]}"] if traced else [])
    return "; ".join(word for word in words if word)


def _causes(edits: Sequence[str]) -> str:
    """The kinds of the edits, without their values."""
    return " + ".join(sorted({edit.split("=")[0].split("@")[0] for edit in edits})) or _NO_CAUSE


def _matrix(pairs: list[tuple[str, str]]) -> Iterator[str]:
    """Expected down, found across."""
    counts = Counter(pairs)
    heads = sorted({found for _, found in pairs})
    yield "| expected \\ found | " + " | ".join(heads) + " |"
    yield "|---" * (len(heads) + 1) + "|"
    for wanted in sorted({wanted for wanted, _ in pairs}):
        yield f"| {wanted} | " + " | ".join(str(counts[wanted, head] or ".") for head in heads) + " |"


def _every(rows: Rows) -> Iterator[str]:
    yield "| case | symptom | verdict | first difference | cause | seconds | |"
    yield "|---|---|---|---|---|---|---|"
    for case, variant, found in rows:
        stands = standing(variant, found)
        note = "; ".join(found["wrong"]) if stands == "FAIL" else variant.miss
        cells = (
            f"{case.id} {variant.name}".strip(),
            case.symptom,
            _verdict(found["verdict"], found["class_"]),
            _first(found),
            ", ".join(found["edits"]),
            f"{found['seconds']:.0f}",
            f"{stands}: {note}" if note else stands,
        )
        yield "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"
