"""The corpus as tests: every case is well formed, and, slowly, the tool says of each what it must."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from spec.edits import CATALOGUE
from tests.corpus import __main__ as corpus
from tests.corpus.case import ALL, Case, Variant, left_out, read_all
from tests.corpus.matrix import markdown
from tests.corpus.running import Found, run, wanted

CASES = read_all()
VARIANTS = [(case, variant) for case in CASES.values() for variant in case.variants]


def test_every_report_has_a_case_or_a_reason() -> None:
    assert set(CASES) <= set(ALL)
    lacking = set(ALL) - set(CASES) - set(left_out())
    assert not lacking, f"neither a case nor a line in left_out.toml: {sorted(lacking)}"
    assert all(reason for reason in left_out().values())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_case_is_well_formed(case: Case) -> None:
    names = [variant.name for variant in case.variants]
    assert names and len(set(names)) == len(names), "variants have names of their own"
    assert case.sources and case.symptom and case.must
    for variant in case.variants:
        assert variant.commands[0].split()[0] == "run"
        assert {words.split()[0] for words in variant.commands} <= {"run", "explain", "power", "compare"}
        kinds = {edit.split("=")[0].split("@")[0] for edit in variant.edits}
        assert kinds | set(variant.caught) | set(variant.missed) <= set(CATALOGUE)
        assert not variant.edits or "explain last" in variant.commands


def test_a_miss_is_never_counted_as_a_pass() -> None:
    variant = Variant(commands=("run",), verdict="SAME", miss="The tool cannot do it.")
    case = Case(id="P01", sources=("a",), symptom="b", must="c", variants=(variant,))
    found = {"verdict": "SAME", "class_": "", "first": "", "edits": [], "printed": "", "seconds": 1.0}
    found["wrong"] = []
    text = markdown({"P01": case}, {("P01", ""): found}, {})
    assert "0 pass, 1 MISS, 0 FAIL" in text and "MISS: The tool cannot do it." in text
    text = markdown({"P01": case}, {("P01", ""): found | {"wrong": ["verdict SAME"]}}, {})
    assert "0 pass, 0 MISS, 1 FAIL" in text


def test_what_is_kept_stays_where_a_variant_is_run_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (Variant(name=name, commands=("run",), verdict="SAME") for name in ("one", "other"))
    case = Case(id="P01", folder=Path("p01_x"), sources=("a",), symptom="b", must="c", variants=(one, other))
    ran: list[str] = []

    def run(case: Case, variant: Variant) -> Found:
        ran.append(variant.name)
        empty = {field.name: [] if "list" in str(field.type) else "" for field in fields(Found)}
        seconds = {"seconds": 0.0, "commands": ["run"], "expected": wanted(variant)}
        return Found(**(empty | {"case": "P01", "variant": variant.name} | seconds))

    monkeypatch.setattr(corpus, "run", run)
    corpus._run(case, tmp_path, again=False)
    path = tmp_path / "p01_x.jsonl"
    path.write_text(path.read_text().splitlines()[1] + "\n")
    corpus._run(case, tmp_path, again=False)
    assert ran == ["one", "other", "one"]
    assert [json.loads(line)["variant"] for line in path.read_text().splitlines()] == ["one", "other"]


@pytest.mark.slow  # Each starts both frameworks several times.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("case", "variant"), VARIANTS, ids=[f"{case.id}-{one.name}".strip("-") for case, one in VARIANTS]
)
def test_the_tool_says_what_the_report_asks_for(case: Case, variant: Variant) -> None:
    found = run(case, variant)
    assert not found.wrong, "\n".join([*found.wrong, found.printed])
