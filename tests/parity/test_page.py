"""`report.html` of every kind of result: nothing fetched, nothing empty, all escaped, figures in words."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from parity.report import deliver, page
from parity.report.page.folder import RunFolder
from parity.report.page.manifests import section as manifests
from parity.report.page.tensors import in_bounds
from parity.report.result import Result, read_result
from spec.errors import RuleError
from tests.parity import trace_writer
from tests.parity.conftest import ROOT
from tests.parity.page_runs import (
    Page,
    bench,
    compared,
    different,
    equivalent,
    failed,
    failed_launch,
    judged,
    not_comparable,
    nothing,
    numerics_of,
    one_not_finite,
    one_side,
    other_gradients,
    same,
    save,
    swept,
    traced,
)
from tests.parity.pass_writer import Content

HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(2)>&amp;\' -->'


KINDS = [
    same,
    different,
    not_comparable,
    one_not_finite,
    failed,
    one_side,
    bench,
    swept,
    compared,
    equivalent,
    nothing,
    traced,
]


def test_the_bound_of_the_first_step_stands_beside_that_of_the_rest(tmp_path: Path) -> None:
    folder = same(tmp_path)
    loss = read_result(folder / "result.json").numerics.loss
    assert (loss.first_step, loss.first_tolerance, loss.tolerance) == (0, 1.5e-6, 2e-6)
    text = page.write(folder).read_text("utf-8")
    assert "2e-06 (1.5e-06 at step 0), table" in text
    assert "tolerance 2e-06, allowed below; 1.5e-06 at step 0" in text


def drawn(folder: Path) -> Page:
    return Page(page.write(folder).read_text("utf-8"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_whole_and_fetches_nothing(kind: Callable[[Path], Path], tmp_path: Path) -> None:
    read = drawn(kind(tmp_path))
    check(read, numbers_may_be_nan=kind is one_not_finite)


# Measured steps, a pair with a confirmed cause, the power of a run, a run that changed sides.
@pytest.mark.parametrize("number", ["0001", "0003", "0004", "0005"])
def test_a_saved_run_has_a_page(number: str, tmp_path: Path) -> None:
    (saved,) = (ROOT / "benchmarks/results/judged_cpu").glob(f"{number}_*")
    shutil.copytree(saved, tmp_path / "run")
    read = drawn(tmp_path / "run")
    check(read)
    verdict = json.loads((saved / "result.json").read_text())["verdict"]
    assert verdict in read.text


def check(read: Page, *, numbers_may_be_nan: bool = False) -> None:
    assert not read.misfits and not read.open
    for tag, attributes in read.elements:
        for name in ("src", "href", "srcset", "action", "poster", "data"):
            assert attributes.get(name) in (None, "data:,"), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
    html = read.html
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert "@import" not in html and "url(" not in style and "http" not in style
    ids = [attributes["id"] for _, attributes in read.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert all(read.sections), read.sections
    figures = [one for one in read.all("svg") if one.get("role") == "img"]
    assert len(figures) == len(read.all("svg")) == 2 * len(read.all("figure"))
    assert all(len(one["aria-label"] or "") > 20 for one in figures)
    assert all(one.get("scope") in ("col", "row", "rowgroup") for one in read.all("th"))
    shown = " ".join(read.words + [str(one.get("aria-label")) for one in figures])
    unsaid = r"None|undefined" if numbers_may_be_nan else r"None|undefined|nan|inf"
    assert not re.findall(rf".{{0,40}}\b(?:{unsaid})\b", shown)


def test_the_verdict_comes_first_with_its_exit_code(tmp_path: Path) -> None:
    read = drawn(different(tmp_path))
    first = " ".join(read.words[1:6])
    assert "DIFFERENT" in first and "first divergence: grad of step 0" in first
    assert "Exit code" in read.text and "the sides differ" in read.text and "grad of" in read.text


def test_the_page_of_a_run_shows_every_part(tmp_path: Path) -> None:
    text = drawn(traced(tmp_path)).text
    for head in ("Curves", "What a step costs", "One step in time", "Tensor by tensor", "Do it again"):
        assert head in text
    assert "parity run tiny" in text
    assert "Not measured" in text


def test_the_seeds_of_an_equivalence_are_shown_against_the_margin(tmp_path: Path) -> None:
    read = drawn(equivalent(tmp_path))
    assert "the sides end alike" in read.text and "margin 1 %, 5 seeds" in read.text
    assert [row for row in read.words if row.startswith("seed ")] == [f"seed {seed}" for seed in range(5)]
    marks = [one for one in read.all("circle") if one["class"] == "dot s3"]
    assert len(marks) == 2 * 4, "one a seed with a difference, in both widths"


def test_a_failed_run_shows_the_last_words_of_its_side(tmp_path: Path) -> None:
    read = drawn(failed(tmp_path))
    assert "out of memory <here>" in read.text and "launches/002_jax.log" in read.text


def test_several_interruptions_have_one_heading_and_each_its_place(tmp_path: Path) -> None:
    launches = [
        msgspec.structs.replace(
            failed_launch(), ended="interrupted", message=f"torch in {number} was interrupted", log_tail=[]
        )
        for number in ("001_time", "005_time", "009_time")
    ]
    read = drawn(save(tmp_path, verdict="FAILED", exit_code=6, launches=launches))
    assert read.words.count("Where it was interrupted") == 1
    assert all(launch.message in read.words for launch in launches)
    assert "It left no words" not in read.text and "What went wrong" not in read.text


def test_nothing_stands_without_a_word_behind_it(tmp_path: Path) -> None:
    folder = judged(tmp_path)
    content = json.loads((folder / "result.json").read_text())
    content["added"] = {"unmatched": {"torch": [], "jax": []}, "links": ["a <-> b"]}
    content["against"] = {
        "folder": "runs/0001_toy-mlp",
        "same_host": True,
        "differences": [],
        "unmeasured": {},
        "changes": [
            {
                "side": "torch", "mode": "eager", "batch": 8, "figure": "step_ms.median",
                "before": 2.0, "now": 1.0, "limit": None,
                "ratio": {"median": 0.5, "ci95": [0.4, 0.6], "passes": [0.5], "verdict": "FASTER"},
                "beyond_limit": False, "beyond_noise": True, "failed": False,
            }
        ],
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(content))
    read = drawn(folder)
    at = read.words.index("unmatched")
    assert read.words[at + 1] == "none" and "empty" not in read.words
    at = read.words.index("changes")
    assert read.words[at + 1 : at + 6] == ["figure", "saved", "now", "now / saved", "limit"]
    equal = read.words.index("learning rate")
    assert read.words[equal + 1 : equal + 4] == ["0", "\u2013", "equal bits"]


def test_a_cell_is_the_share_of_its_bound_that_is_used(tmp_path: Path) -> None:
    numerics = numerics_of(tmp_path, other_gradients)
    item = next(item for item in numerics.tensors if item.phase == "grad" and not item.ok)
    assert in_bounds(item) == max(item.rms_rel / item.tolerance_rms, item.max_rel / item.tolerance_max) > 1
    item.rms_rel = None
    assert in_bounds(item) == float("inf")


def test_what_a_run_says_is_text_and_nothing_else(tmp_path: Path) -> None:
    """Names, words of errors, paths and command lines from outside make no element of the page."""

    def rename(content: Content) -> None:
        other_gradients(content)
        content.manifest["environment"] = {HOSTILE: HOSTILE, "variables": {"TORCH_X": HOSTILE}}

    clean, dirty = tmp_path / "clean", tmp_path / "dirty"
    kinds = {}
    for folder, words in ((clean, "words"), (dirty, HOSTILE)):
        launch = failed_launch()
        launch.message, launch.log_tail, launch.passes = words, [words], [words]
        judged(folder, rename, launches=[launch])
        content = json.loads((folder / "result.json").read_text())
        for item in (*content["numerics"]["tensors"], content["numerics"]["first_divergence"]):
            item["tensor"] = words
        content["reasons"] = [words]
        content["explanation_of_later"] = {"cause": words, "rows": [{words: words}]}
        content["runs"][0] |= {"name": words, "edits": {"jax": [words]}}
        (folder / "result.json").write_text(json.dumps(content))
        (folder / "run.json").write_text(json.dumps({"argv": ["run", words], "environment": {"utc": words}}))
        trace = trace_writer.launched_as_a_graph(1)
        object.__setattr__(trace.device[0], "name", words)
        object.__setattr__(trace, "device_name", words)
        trace_writer.write_pass(folder, 31, "torch", words, trace)
        kinds[words] = sorted(tag for tag, _ in drawn(folder).elements)
    read = drawn(dirty)
    check(read)
    assert len(read.all("script")) == 2 and not read.all("img")
    assert HOSTILE in read.text
    assert set(kinds["words"]) == set(kinds[HOSTILE])


def test_a_part_that_is_new_is_shown_as_it_stands(tmp_path: Path) -> None:
    folder = different(tmp_path)
    content = json.loads((folder / "result.json").read_text())
    content["attribution"] = {"layer": "inductor", "left": None}
    content["attribution"]["edges"] = [
        {"edge": "casts", "between": ["torch f64", "torch"], "errors": {"torch": 1e-9}, "in_run": True}
    ]
    (folder / "result.json").write_text(json.dumps(content))
    read = drawn(folder)
    assert "Attribution" in read.text and "inductor" in read.text
    assert "torch f64, torch" in read.text, "short lists stand in cells"
    start = read.words.index("Attribution")
    assert read.words[start:].index("between") < read.words[start:].index("torch f64, torch")


def test_manifests_are_told_apart_entry_by_entry(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        content.manifest["facts"]["parameters"][0]["decayed"] ^= True
        content.manifest["environment"] = {"gpus": [], "nccl": "2.28"}

    section = manifests(RunFolder(judged(tmp_path, change)))
    told = {row.name: row.values for row in section.different}
    assert told["mode_asked"] == ["eager", "jit"]
    assert told["facts.parameters"] == ["16 entries; not the same in wte.weight"] * 2
    assert [row.name for row in section.alone] == ["environment.nccl"], "null and an empty list are both none"
    assert "init_digest" in {row.name for row in section.equal}


def test_a_decay_that_is_not_known_is_no_difference_and_has_its_reason(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        content.manifest["facts"]["parameters"] = [
            row | {"decayed": None} for row in content.manifest["facts"]["parameters"][:3]
        ]
        content.manifest["reasons"]["facts.parameters.decayed"] = "it does not tell"

    folder = judged(tmp_path, change)
    assert "declared decayed" not in (folder / "result.json").read_text()
    told = {
        row.name: row.values
        for row in manifests(RunFolder(folder)).alone + manifests(RunFolder(folder)).different
    }
    assert "decayed not known: it does not tell" in told["facts.parameters.wte.weight"][1]


def test_a_page_that_cannot_be_drawn_leaves_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = msgspec.json.decode((same(tmp_path) / "result.json").read_bytes(), type=Result)
    monkeypatch.setattr(page, "write", lambda folder: 1 / 0)
    deliver.deliver(result, tmp_path, None)
    told = capsys.readouterr()
    assert told.out.startswith("SAME") and "report:" not in told.out
    assert "no report.html: ZeroDivisionError" in told.err


def test_a_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="result"):
        page.write(tmp_path)


def test_a_damaged_pass_leaves_the_rest_of_the_page(tmp_path: Path) -> None:
    folder = traced(tmp_path)
    (folder / "passes" / "021_torch_trace" / "trace.json").write_text("{")
    (folder / "passes" / "002_jax_run" / "steps.rank0.jsonl").write_text("x\ny\n")
    (folder / "passes" / "011_torch_time" / "windows.jsonl").write_text('{"kind": "window"}\n')
    check(drawn(folder))
