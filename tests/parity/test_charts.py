"""Charts: places follow values, ticks are round, no peak is lost, and pictures say what they show."""

import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.report.charts import axes, bars, curves, names, samples, timeline
from parity.report.charts.timeline import Lane, Span

VALUES = st.floats(-1e12, 1e12, allow_nan=False).filter(lambda value: value == 0 or abs(value) > 1e-12)


@given(st.lists(VALUES, min_size=1, max_size=6))
def test_a_scale_holds_its_values_and_its_ticks_are_round(values: list[float]) -> None:
    scale = axes.linear(values, 100.0, 0.0)
    assert all(0.0 <= scale(value) <= 100.0 for value in values)
    ticks = [value for value, _ in scale.ticks()]
    assert len(ticks) <= 9 and all(scale.low <= value <= scale.high for value in ticks[1:-1])
    steps = {f"{b - a:.6e}" for a, b in pairwise(ticks)}
    assert len(steps) <= 2, "even, up to rounding"


def test_decades_are_evenly_apart_and_zero_lies_at_the_bottom() -> None:
    scale = axes.decades([1e-8, 1e-2, 0.0], 100.0, 0.0)
    places = [scale(value) for value, _ in scale.ticks(10)]
    apart = [a - b for a, b in pairwise(places)]
    assert apart == pytest.approx([apart[0]] * len(apart))
    assert scale(0.0) == 100.0 and scale(math.inf) == 0.0
    assert [label for _, label in scale.ticks(10)] == [
        "1e-8", "1e-7", "1e-6", "1e-5", "1e-4", "0.001", "0.01",
    ]  # fmt: skip


def test_steps_have_whole_numbers() -> None:
    assert [label for _, label in axes.linear([0, 2], 0, 100, whole=True).ticks(10)] == ["0", "1", "2"]


def test_thinning_keeps_every_peak() -> None:
    points = [(float(step), 1.0) for step in range(5000)]
    points[3217], points[40] = (3217.0, 9.0), (40.0, -9.0)
    thin = curves.thinned(points)
    assert len(thin) < 300 and {(3217.0, 9.0), (40.0, -9.0)} <= set(thin)
    assert thin == sorted(thin)


def test_a_line_breaks_where_a_value_is_not_finite() -> None:
    series = curves.Series("torch", 0, ((0.0, 1.0), (1.0, math.nan), (2.0, 1.5), (3.0, 2.0)))
    apart = curves.Series("both", 3, ((0.0, 0.0), (1.0, math.inf)))
    drawn = curves.draw(curves.Curves("t", "d", (series,), "loss", (apart,), ((0.0, 1e-6),)), 400)
    root = ElementTree.fromstring(drawn)
    lines = [one.get("points") or "" for one in root.iter("polyline") if "s0" in (one.get("class") or "")]
    assert [len(points.split()) for points in lines] == [1, 2]
    assert "nan" not in drawn and "inf" not in drawn
    assert "tolerance 1e-06" in "".join(root.itertext())


def test_the_bound_of_a_first_step_is_its_own() -> None:
    """The stair lies between steps 0 and 1, and the lower bound is lower in the picture."""
    series = curves.Series("a", 0, ((0.0, 1.0), (1.0, 1.0), (2.0, 1.0)))
    apart = curves.Series("a and b", 3, ((0.0, 1e-7), (1.0, 1e-7), (2.0, 1e-7)))
    bounds = ((0.0, 4e-6), (1.0, 1e-3))
    root = ElementTree.fromstring(
        curves.draw(curves.Curves("t", "d", (series,), "loss", (apart,), bounds), 400)
    )
    (edge,) = (
        one.get("points") or "" for one in root.iter("polyline") if "bound" in (one.get("class") or "")
    )
    points = [tuple(map(float, point.split(","))) for point in edge.split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert points[1][0] == points[2][0] and points[0][1] == points[1][1] > points[2][1] == points[3][1]
    (band,) = (one.get("points") or "" for one in root.iter("polygon") if one.get("class") == "band")
    assert band.startswith(edge)
    marks = [float(one.get("cx") or 0) for one in root.iter("circle")]
    assert sorted(marks)[-3] < points[1][0] < sorted(marks)[-2]
    assert "tolerance 1e-03, allowed below; 4e-06 at step 0" in "".join(root.itertext())


def test_every_sample_is_a_mark_and_is_counted_once() -> None:
    group = samples.Samples("a", 0, ((1.0, 1.1), (1.2, 40.0)), 1.15, 1.0, 28.0)
    root = ElementTree.fromstring(samples.draw([group], 400, "ms", "t", "d"))
    marks = [one for one in root.iter() if "dot" in (one.get("class") or "")]
    counts = [
        int((one.text or "").split()[0]) for one in root.iter("title") if "windows of" in (one.text or "")
    ]
    assert len(marks) == 4 and sum(counts) == 4
    assert "by decades" in "".join(root.itertext())


def test_bars_are_as_long_as_their_amounts() -> None:
    root = ElementTree.fromstring(bars.draw([("a", 10.0, "10"), ("b", 5.0, "5")], 400, "s0", "t", "d"))
    long, short = (float(one.get("width") or 0) for one in root.iter("rect"))
    assert long == pytest.approx(2 * short, rel=0.01)


def test_the_overview_is_as_high_as_the_share_that_ran() -> None:
    """Half of the first half of the step is busy, all of the rest."""
    spans = (*(Span(index * 2.0, 1.0, "k") for index in range(250)), Span(500.0, 500.0, "k"))
    lane = Lane("device", "kernel", spans, True, 0)
    assert lane.busy_us(0.0, 1000.0) == pytest.approx(750.0)
    root = ElementTree.fromstring(timeline.overview([lane], 1000.0, 1000.0, (0.0, 100.0), 408, "t"))
    (path,) = (one.get("d") or "" for one in root.iter("path"))
    heights = {float(part.partition("v-")[2].partition("h")[0]) for part in path.split("z") if part}
    assert heights == {11.0, 22.0}
    assert "75%" in "".join(root.itertext())


def test_the_detail_shows_the_spans_of_its_window_with_their_names() -> None:
    name = "void at::native::vectorized_kernel<4, float>(int, float*)"
    lane = Lane(
        "device", "kernel", (Span(0.0, 50.0, name), Span(60.0, 1.0, "b"), Span(200.0, 9.0, "c")), True, 0
    )
    root = ElementTree.fromstring(timeline.detail([lane], (0.0, 100.0), 800, "t"))
    spans = [one for one in root.iter("rect") if "span" in (one.get("class") or "")]
    assert len(spans) == 2
    words = list(root.itertext())
    assert "vectorized_kernel" in words and any(word.startswith(name) for word in words)


def test_overlapping_spans_count_once() -> None:
    spans = (Span(0.0, 10.0, "a"), Span(5.0, 10.0, "b"), Span(6.0, 1.0, "c"), Span(-5.0, 6.0, "d"))
    assert Lane("l", "kernel", spans, True, 0).busy_us(0.0, 12.0) == pytest.approx(12.0)


def test_a_name_that_does_not_fit_is_cut_or_left_out() -> None:
    assert timeline.fitting("cudaLaunchKernel", 20) == "cudaLaunchKernel"
    assert timeline.fitting("cudaLaunchKernel", 8) == "cudaLau\u2026"
    assert timeline.fitting("cudaLaunchKernel", 3) == ""


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfEEEvT1_", "reduce_kernel"),
        ("_ZN2at6native12_GLOBAL__N_119CatArrayBatchedCopyIfEEvPT_", "CatArrayBatchedCopy"),
        ("_ZN7cutlass7Kernel2I21cutlass_80_simt_sgemmEEvNT_6ParamsE", "cutlass_80_simt_sgemm"),
        ("_Z16gemmSN_NN_kernelIfLi128EEvT_", "gemmSN_NN_kernel"),
        ("_ZL4stepPf", "step"),
        ("_ZN99beyond_its_end", "_ZN99beyond_its_end"),
        ("_ZNS_3fooE", "_ZNS_3fooE"),
        ("void at::(anonymous namespace)::CatArrayBatchedCopy<float, 4>(float*)", "CatArrayBatchedCopy"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(float*)", "kernel"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm>(A::Params)", "cutlass_80_simt_sgemm"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD"),
        ("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT"),
        ("<lambda>", "<lambda>"),
    ],
)  # fmt: skip
def test_a_kernel_is_called_by_its_own_name(name: str, short: str) -> None:
    assert names.short(name) == short


@given(st.text(max_size=60), st.sampled_from(["", "_Z", "_ZN", "_ZN3foo"]))
def test_any_name_has_a_short_one(text: str, begin: str) -> None:
    name = begin + text
    assert names.short(name) or not name
