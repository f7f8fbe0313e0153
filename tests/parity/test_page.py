"""`report.html` of every kind of result: nothing fetched, nothing empty, all escaped, figures in words."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from parity.report import deliver, page
from parity.report.equivalence import Equivalence, SeedRow
from parity.report.page.folder import RunFolder
from parity.report.page.manifests import section as manifests
from parity.report.page.tensors import in_bounds
from parity.report.result import Result
from spec.errors import RuleError
from tests.parity import trace_writer
from tests.parity.conftest import ROOT
from tests.parity.page_runs import (
    Page,
    bench_rows,
    failed_launch,
    judged,
    numerics_of,
    save,
    timed,
)
from tests.parity.pass_writer import Content, write_pass

HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(2)>&amp;\' -->'


def other_gradients(content: Content) -> None:
    """Gradients of the JAX side one hundredth too long."""
    for key in [key for key in content.tensors[0] if key.startswith("grad/")]:
        content.tensors[0][key] = content.tensors[0][key] * 1.01


def other_batches(content: Content) -> None:
    content.steps[0][1]["batch_digest"] = "f" * 16


def not_finite(content: Content) -> None:
    content.set_value(2, "loss", float("nan"))


def same(folder: Path) -> Path:
    return judged(folder, speed=timed(folder), unmeasured={})


def different(folder: Path) -> Path:
    return judged(folder, other_gradients)


def not_comparable(folder: Path) -> Path:
    return judged(folder, other_batches)


def one_not_finite(folder: Path) -> Path:
    return judged(folder, not_finite)


def failed(folder: Path) -> Path:
    launch = failed_launch()
    write_pass(folder / "passes" / "001_torch_run", "torch")
    return save(folder, verdict="FAILED", exit_code=6, reasons=[launch.message], launches=[launch])


def one_side(folder: Path) -> Path:
    write_pass(folder / "passes" / "001_torch_run", "torch")
    return save(folder, command="train")


def bench(folder: Path) -> Path:
    speed = timed(folder)
    return save(folder, command="bench", speed=speed, bench=bench_rows(speed))


def compared(folder: Path) -> Path:
    numerics = numerics_of(folder)
    return save(
        folder, command="compare", verdict="SAME", numerics=numerics, comparisons=[numerics], capture=None
    )


def equivalent(folder: Path) -> Path:
    for side in ("torch", "jax"):
        write_pass(folder / "passes" / f"seed0000_{side}_run", side)
    rows = [
        SeedRow(seed=seed, last={"torch": 3.0, "jax": 3.01}, difference=-0.003 * seed) for seed in range(4)
    ]
    found = Equivalence(
        outcome="EQUIVALENT",
        quantity="loss",
        margin=0.01,
        window=0.1,
        alpha=0.05,
        seeds=[*rows, SeedRow(seed=4, last={"torch": None, "jax": 3.0}, difference=None)],
        mean=-0.0045,
        spread=0.004,
        interval=[-0.009, -0.0001],
        p=0.02,
        seeds_needed=None,
        notes=["a note"],
    )
    return save(folder, command="equivalence", verdict="SAME", equivalence=found)


def nothing(folder: Path) -> Path:
    return save(folder, verdict="FAILED", exit_code=6)


def traced(folder: Path) -> Path:
    trace_writer.write_pass(folder, 21, "torch", "baseline:eager", trace_writer.launched_one_by_one())
    trace_writer.write_pass(folder, 22, "torch", "graph", trace_writer.launched_as_a_graph())
    trace_writer.write_pass(folder, 23, "jax", "jit", trace_writer.operations_on_a_cpu())
    return same(folder)


KINDS = [
    same,
    different,
    not_comparable,
    one_not_finite,
    failed,
    one_side,
    bench,
    compared,
    equivalent,
    nothing,
    traced,
]


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


def _chromium() -> str | None:
    return next(
        (
            found
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (found := shutil.which(name))
        ),
        None,
    )


@pytest.mark.slow  # starts a browser, several seconds a time
@pytest.mark.skipif(_chromium() is None, reason="needs a chromium to look at the page with")
@pytest.mark.parametrize("kind", [traced, different])
def test_a_browser_shows_it_on_a_phone_without_a_complaint(
    kind: Callable[[Path], Path], tmp_path: Path
) -> None:
    """390 px wide: nothing sticks out, every button of a timeline works, the console stays empty."""
    drawn_page = page.write(kind(tmp_path / "run"))
    # The least width of a window is more than a phone's; a frame can be as narrow. What the page's script or
    # the browser complains of becomes text of the frame's parent, which is what comes back.
    frame = tmp_path / "frame.html"
    frame.write_text(_FRAME.replace("PAGE", drawn_page.as_uri()))
    done = subprocess.run(
        [
            str(_chromium()), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--allow-file-access-from-files", "--enable-logging=stderr",
            "--virtual-time-budget=4000",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", frame.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    answer = re.search(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)
    assert answer is not None, done.stdout
    found = json.loads(answer.group(1))
    assert found["width"] <= 390 and found["inside"] == 390, found
    assert found["errors"] == []
    assert found["details"] == (6 if kind is traced else 0)
    assert found["hidden"] == 0, "the whole step, the last button, shows every lane"
    assert found["moved"] is (kind is traced)
    assert "CONSOLE" not in done.stderr, done.stderr


_FRAME = """<!doctype html><iframe style="width:390px;height:900px;border:0" src="PAGE"></iframe><script>
const frame = document.querySelector("iframe"), errors = [];
frame.addEventListener("load", () => {
  const inner = frame.contentWindow, page = frame.contentDocument;
  inner.addEventListener("error", event => errors.push(event.message));
  const detail = page.querySelector(".detail"), before = detail && detail.innerHTML;
  for (const button of page.querySelectorAll(".zoom button")) button.click();
  const answer = document.createElement("pre");
  answer.textContent = JSON.stringify({
    inside: inner.innerWidth, width: page.documentElement.scrollWidth, errors,
    hidden: page.querySelectorAll(".detail .row[display]").length,
    details: page.querySelectorAll(".detail svg").length, moved: !!detail && before !== detail.innerHTML,
  });
  document.body.replaceChildren(answer);
});
</script>"""
