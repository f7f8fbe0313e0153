"""What `parity explain` found, on the page: in words and tables, and no key of the record among them."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from parity.explain import own_optimizers
from parity.report import page
from parity.report.causes import Explanation
from parity.report.page import causes
from tests.parity.conftest import ROOT
from tests.parity.page_runs import Page, different

RESULTS = ROOT / "benchmarks" / "results"
KEYS = {
    "outcome",
    "refuted",
    "tried",
    "opened",
    "closed",
    "signatures",
    "before",
    "rms_rel",
    "in_run",
    "mend",
}


def explained(folder: Path, explanation: dict[str, Any]) -> str:
    """The text of the part of the page."""
    path = different(folder) / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"explanation": explanation}))
    text = Page(page.write(folder).read_text("utf-8")).text
    return text.partition("Why they differ")[2].partition("Curves")[0]


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (
            "judged_cpu/0003_planted_mistake_44a92a2a6f_20261130T011852Z",
            ["Confirmed", "GELU is the erf form", "to be as jax is: F.gelu(x", "16 changes that were tried"],
        ),
        (
            "attributed_cpu/0004_traced_jax_b06d2852ce_20261130T044737Z",
            ["Not explained", "No change of the catalogue", "carries it", "reproduce.py", "Charged to"],
        ),
    ],
)
def test_an_explanation_is_told_in_words(tmp_path: Path, run: str, told: list[str]) -> None:
    found = json.loads((RESULTS / run / "result.json").read_text())["explanation"]
    text = explained(tmp_path, found)
    assert [words for words in told if words not in text] == []
    assert not KEYS & set(text.split()) and "{" not in text and "_rms" not in text


def test_update_rules_of_own_optimizers_are_told_side_by_side(tmp_path: Path) -> None:
    rule = {
        "words": "SGD: learning rate constant 0.1",
        "optimizer": "sgd",
        "constants": {"momentum": 0.9},
        "written": [],
        "decay": {"a.weight": 0.1, "a.bias": 0.0},
        "decay_form": "decoupled",
        "eps_place": "after",
        "bias_correction": "on",
        "rates": [0.1],
        "stored": "",
        "lost": None,
        "reproduces": True,
        "residual": 1e-13,
        "held_out": 2e-13,
        "others": [],
    }
    rates = {"torch": 0.1, "jax": 0.2}
    rules = {
        "rules": {"torch": rule, "jax": rule | {"reproduces": False, "decay": {}}},
        "differences": ["learning rate 0.1 in torch, 0.2 in jax"],
        "rows": [{"step": 0, "rates": rates, "update_norm": rates}],
        "steps": 3,
        "gradient_rel": {"run": 1e-16},
    }
    found = {
        "outcome": "confirmed",
        "summary": "learning rate 0.1 in torch, 0.2 in jax",
        "edits": [],
        "steps": [],
        "left": None,
        "folder": "explain/0001",
        "reproduction": None,
        "passes": 8,
        "seconds": 12.0,
        "update_rules": rules,
    }
    text = explained(tmp_path, found)
    assert "not identified; nearest: SGD: learning rate constant 0.1" in text and "decays" in text
    assert "rate, torch" in text and "Learning rates, of 3 steps followed" in text
    assert not KEYS & set(text.split())

    rules["rules"]["jax"] |= {"residual": 0.8, "decay": {"a.weight": -79.7}, "others": ["SGD: decay -79.7"]}  # type: ignore[index,operator]
    text = explained(tmp_path, found)
    assert "not identified; nearest: a rule of the kind of SGD, whose constants are left out" in text
    assert "-79.7" not in text
    told = own_optimizers.lines(convert(found, Explanation))
    (row,) = (line.split() for line in told if line.startswith("     0 "))
    assert row == ["0", "0.1", "\u2013", "0.1", "0.2"]
    assert any(line.startswith("jax: NOT IDENTIFIED; nearest: a rule of the kind of SGD") for line in told)
    assert not any("-79.7" in line for line in told)


def test_a_residual_that_is_not_finite_is_told_so() -> None:
    assert (causes._rms(-1.0), causes._rms(0.0)) == ("not finite", "0")
