"""The page of a sweep: a line a contender over the batch, a table, the model in words and numbers."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from parity.report import page
from parity.report.charts import sweep as chart
from tests.parity.page_runs import Page, swept
from tests.parity.test_page import HOSTILE, check


def drawn(folder: Path) -> Page:
    return Page(page.write(folder).read_text("utf-8"))


def test_a_sweep_is_a_chart_and_a_table_and_no_dump(tmp_path: Path) -> None:
    read = drawn(swept(tmp_path))
    check(read)
    assert "Step time over batch" in read.text and "within target" not in read.text
    assert not re.search(r"\b(mad|predicted ms|device ms per row)\b", read.text), (
        "names of fields of the result"
    )
    over = [one["class"] for one in read.all("polyline") if str(one["class"]).startswith("over")]
    assert over == ["over s0 d0", "over s1 d0"] * 2, (
        "a line a contender, on a wide screen and on a narrow one"
    )
    assert len([one for one in read.all("polyline") if str(one["class"]).startswith("model")]) == 4
    marks = [str(one["class"]) for one in (*read.all("circle"), *read.all("rect")) if one.get("class")]
    fitted, predicted = ([name for name in marks if name == f"point s0{kind}"] for kind in (" fitted", ""))
    assert (len(fitted), len(predicted)) == (2 * (4 + 1), 2), (
        "four of five batches, and the one beside the name"
    )
    assert marks.count("ring") == 2 * 2, "where they cross, and where they cross again"
    words = " ".join(read.words)
    assert "A : torch eager is faster below batch" in words and "B : from batch" in words
    assert "device is slower from batch" in words and "beyond the sweep" not in words
    assert [word for word in read.words if word.endswith("every window, every figure")] == [
        f"Batch {batch}: every window, every figure" for batch in (1, 4, 16, 64, 256)
    ]


def test_each_batch_has_the_prediction_with_its_error(tmp_path: Path) -> None:
    folder = swept(tmp_path)
    content = json.loads((folder / "result.json").read_text())
    (point,) = (one for one in content["sweep"]["points"] if (one["batch"], one["side"]) == (16, "torch"))
    told = f"predicted {point['predicted_ms']:.4g}, {100 * point['error']:+.1f}\u00a0%"
    assert told in page.write(folder).read_text("utf-8")


@pytest.mark.parametrize("stop", [1, 2, 5])
def test_a_sweep_that_was_broken_off_has_a_page(stop: int, tmp_path: Path) -> None:
    read = drawn(swept(tmp_path, stop))
    check(read)
    assert ("No batch was measured to its end." in read.text) is (stop == 1)


def test_names_in_a_sweep_are_text_and_nothing_else(tmp_path: Path) -> None:
    folder = swept(tmp_path)
    words = (folder / "result.json").read_text()
    mode = json.dumps(HOSTILE)[1:-1]
    words = words.replace('"eager"', f'"{mode}"').replace('"torch eager"', f'"torch {mode}"')
    (folder / "result.json").write_text(words)
    read = drawn(folder)
    check(read)
    assert HOSTILE in read.text and not read.all("img") and not read.all("script")


def test_points_lie_where_their_logarithms_are() -> None:
    points = tuple(
        chart.Measured(batch, 2.0 * batch, 2.0 * batch, 2.0 * batch, True) for batch in (1, 10, 100)
    )
    line = chart.Line("torch", "eager", 0, 0, 0, points, ())
    root = ElementTree.fromstring(chart.draw([line], [], 920, "t", "d"))
    (drawn_line,) = root.iter("polyline")
    (x0, y0), (x1, y1), (x2, y2) = (
        map(float, place.split(",")) for place in (drawn_line.get("points") or "").split()
    )
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.02) and y0 - y1 == pytest.approx(y1 - y2, abs=0.02)
    assert y0 > y1 and x1 > x0


def test_names_that_would_lie_on_each_other_are_moved_apart() -> None:
    assert chart.apart([10.0, 11.0, 95.0], 20.0, 0.0, 100.0) == [10.0, 30.0, 95.0]
    assert chart.apart([90.0, 95.0, 95.0], 20.0, 0.0, 100.0) == [60.0, 80.0, 100.0]


def test_no_word_leaves_the_picture() -> None:
    """Letters are 6.8 wide on the whole, as the picture takes them to be."""
    points = tuple(chart.Measured(batch, 1.0, 0.9, 1.2, True) for batch in (1, 2, 4))
    lines = [chart.Line("torch baseline", "m" * 90, 0, number, number, points, ()) for number in range(12)]
    for width in (360, 920):
        root = ElementTree.fromstring(chart.draw(lines, [], width, "t", "d"))
        bottom = float((root.get("viewBox") or "").split()[3])
        for one in root.iter("text"):
            assert 0 < float(one.get("y") or 0) < bottom
            if one.get("text-anchor") == "start":
                assert float(one.get("x") or 0) + 6.8 * len(one.text or "") <= width + 1
