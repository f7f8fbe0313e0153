"""`python -m tests.corpus [CASES...]`: runs cases one by one and prints the confusion matrix.

Findings are kept, a file of JSON lines for each case, so that a broken-off run goes on where it was. Must
not: judge; `running` compares, `matrix` counts.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.corpus.case import ALL, Case, Variant, left_out, read_all
from tests.corpus.matrix import markdown, standing
from tests.corpus.running import Found, as_json, run, wanted, wrongs

_TABLE = "matrix.md"


def main() -> int:
    """1 where a case is not as it expects, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("cases", nargs="*", help="P01 P07 ...; all of them where none is named")
    parser.add_argument("--out", type=Path, default=Path("runs/corpus"), help="where findings are kept")
    parser.add_argument("--again", action="store_true", help="run cases whose findings are kept already")
    parser.add_argument(
        "--no-run", action="store_true", help="print the matrix of the findings that are kept"
    )
    options = parser.parse_args()
    cases = read_all()
    names = [name.upper() for name in options.cases] or list(cases)
    if unknown := [name for name in names if name not in cases]:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(cases)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in [] if options.no_run else names:
        _run(cases[name], options.out, options.again)
    found = _kept(cases, options.out)
    text = markdown(cases, found, left_out())
    (options.out / _TABLE).write_text(text, "ascii")
    print(text)
    mine = [(case, one) for case in map(cases.get, names) if case for one in case.variants]
    stands = [standing(one, found[case.id, one.name]) for case, one in mine if (case.id, one.name) in found]
    return int("FAIL" in stands)


def _run(case: Case, out: Path, again: bool) -> None:
    """Runs what is not kept yet, and writes the case's file after each variant."""
    path = out / f"{case.folder.name}.jsonl"
    lines = _lines(path)
    for variant in case.variants:
        if not again and variant.name in lines and (judged := _judged(lines[variant.name], case, variant)):
            lines[variant.name] = judged
        else:
            found: Found = run(case, variant)
            lines[variant.name] = json.loads(as_json(found))
            words = "; ".join(found.wrong) or "as expected"
            print(f"{case.id} {variant.name}: {words} ({found.seconds:.0f} s)", file=sys.stderr, flush=True)
        kept = [json.dumps(lines[one.name]) for one in case.variants if one.name in lines]
        path.write_text("\n".join(kept) + "\n", "ascii")


def _judged(finding: dict[str, Any], case: Case, variant: Variant) -> dict[str, Any] | None:
    """A kept finding under what its variant expects now; None where its commands are others.

    Where the expectations changed since, words are looked for in what was printed alone, since the result of
    the run is gone: what stands nowhere else needs another run.
    """
    if finding["commands"] != [words.format(case=case.folder.name) for words in variant.commands]:
        return None
    if finding.get("expected") == wanted(variant):
        return finding
    return finding | {"wrong": list(wrongs(variant, finding, finding["printed"]))}


def _lines(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    return {one["variant"]: one for one in map(json.loads, path.read_text("ascii").splitlines())}


def _kept(cases: dict[str, Case], out: Path) -> dict[tuple[str, str], dict[str, Any]]:
    assert set(cases) <= set(ALL)
    found = {}
    for name, case in cases.items():
        lines = _lines(out / f"{case.folder.name}.jsonl")
        for variant in case.variants:
            judged = _judged(lines[variant.name], case, variant) if variant.name in lines else None
            if judged is not None:
                found[name, variant.name] = judged
    return found


if __name__ == "__main__":
    sys.exit(main())
