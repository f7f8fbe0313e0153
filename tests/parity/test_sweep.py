"""Sweeps: what is asked for, what the model predicts, where curves cross; on times that a formula gives."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity import given_data
from parity.bench import crossing, host_model, sweep
from parity.bench.blocks import calls
from parity.options import Bench
from parity.plan import Plan, make_plan
from parity.report import bench_table
from spec.data.batches import RowSource, open_source, write_batches
from spec.data.folder import batch_file
from spec.errors import RuleError
from spec.job import PREPARED_BATCHES
from spec.presets import preset
from spec.run import Problem
from tests.parity.timed import block, called, run_folder

EAGER, GRAPH, JIT = ("torch", "eager"), ("torch", "inductor"), ("jax", "jit")


@pytest.fixture
def plan() -> Plan:
    return make_plan(Bench(preset="toy-mlp", device="cpu"))


@pytest.mark.parametrize(
    ("text", "batches", "fitted"),
    [
        ("batch=1..256", (1, 2, 4, 8, 16, 32, 64, 128, 256), (1, 2, 128, 256)),
        ("batch=3..20", (3, 6, 12, 20), (3, 6, 12, 20)),
        ("batch=16,1,4", (1, 4, 16), (1, 4, 16)),
    ],
)
def test_batches_of_a_sweep(plan: Plan, text: str, batches: tuple[int, ...], fitted: tuple[int, ...]) -> None:
    axis = sweep.parse(text, plan)
    assert axis is not None
    assert (axis.batches, axis.fitted) == (batches, fitted)
    assert axis.declared() == {"batches": list(batches), "fitted": list(fitted)}


@pytest.mark.parametrize("text", ["batch=4", "batch=0..4", "rows=1..4", "batch=4..4", "batch=", "batch=8..2"])
def test_what_is_no_sweep_is_refused(plan: Plan, text: str) -> None:
    with pytest.raises(RuleError, match="A sweep names batches"):
        sweep.parse(text, plan)


def test_rows_that_micro_batches_do_not_divide_are_refused_beforehand() -> None:
    plan = make_plan(Bench(preset="tiny", device="cpu", devices=1))
    with pytest.raises(RuleError, match="micro-batches"):
        sweep.parse("batch=1..4", plan)


def test_a_sweep_beside_a_global_batch_is_refused(plan: Plan) -> None:
    with pytest.raises(RuleError, match="--sweep batch=1,2 --global-batch 8"):
        sweep.parse("batch=1,2", plan, global_batch=8)


def test_a_sweep_whose_rows_no_host_holds_is_refused(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of toy-mlp is 64 float32, and a pass keeps four batches of them."""
    monkeypatch.setattr(sweep, "memory_bytes", lambda: 4 * 256 * 1000)
    assert sweep.parse("batch=1..1000", plan) is not None
    with pytest.raises(RuleError, match="prepared batches of 1,001 rows") as caught:
        sweep.parse("batch=1..1001", plan)
    assert "below 1,000 rows a device" in caught.value.mend


def test_a_folder_of_batches_is_asked_for_the_rows_of_the_sweep(tmp_path: Path) -> None:
    """The preset's own batch has 8 rows, which the sweep may stay below or go beyond."""
    source = open_source(preset("toy-mlp").problem)
    for rows in (4, 8):
        write_batches(tmp_path / str(rows), source, steps=PREPARED_BATCHES, global_batch=rows)

    def parse(rows: int, text: str) -> sweep.Axis | None:
        options = Bench(preset="toy-mlp", device="cpu", data=str(tmp_path / str(rows)), sweep=text)
        return sweep.parse(text, make_plan(options))

    assert parse(4, "batch=1,2,4") is not None
    with pytest.raises(RuleError, match="x has 8 rows, row 63 was asked for") as caught:
        parse(8, "batch=1,64")
    assert "no more rows a step" in caught.value.mend
    batch_file(tmp_path / "4", PREPARED_BATCHES - 1).unlink()
    with pytest.raises(RuleError, match="Every step has its batch"):
        parse(4, "batch=1,2,4")


def test_the_data_of_a_sweep_are_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def count(problem: Problem) -> RowSource:
        opened.append(problem.global_batch)
        return open_source(problem)

    monkeypatch.setattr(given_data, "open_source", count)
    (tmp_path / "a.txt").write_text("some text " * 100)
    options = Bench(preset="tiny", device="cpu", devices=1, data=str(tmp_path / "a.txt"), sweep="batch=2,8")
    assert sweep.parse(options.sweep, make_plan(options)) is not None
    assert opened == [8]


def times(host_ms: float, device_ms: float, per_row: float, batches: list[int]) -> dict[int, float]:
    return {batch: max(host_ms, device_ms + per_row * batch) for batch in batches}


BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
DECLARED = [1, 2, 128, 256]


def test_the_model_finds_host_and_device_and_predicts_the_rest() -> None:
    observed = {
        EAGER: times(5.0, 0.5, 0.05, BATCHES),
        GRAPH: times(1.0, 0.5, 0.05, BATCHES),
        JIT: times(2.0, 0.2, 0.04, BATCHES),
    }
    torch, jax = host_model.fit(observed, DECLARED)
    assert torch.host_ms == pytest.approx({"eager": 5.0, "inductor": 1.0})
    assert (torch.device_ms, torch.device_ms_per_row) == pytest.approx((0.5, 0.05))
    assert (jax.host_ms["jit"], jax.device_ms, jax.device_ms_per_row) == pytest.approx((2.0, 0.2, 0.04))
    for (side, mode), own in observed.items():
        model = torch if side == "torch" else jax
        for batch, time_ms in own.items():
            assert host_model.predict(model, mode, batch) == pytest.approx(time_ms)


def test_only_declared_points_are_looked_at() -> None:
    observed = {EAGER: times(5.0, 0.5, 0.05, BATCHES)}
    spoilt = {EAGER: observed[EAGER] | {8: 99.0, 16: 77.0}}
    assert host_model.fit(observed, DECLARED) == host_model.fit(spoilt, DECLARED)


def test_noise_of_five_percent_leaves_predictions_within_ten() -> None:
    generator = np.random.default_rng(0)
    true = times(3.0, 0.5, 0.05, BATCHES)
    noisy = {batch: value * math.exp(generator.normal(0, 0.02)) for batch, value in true.items()}
    (model,) = host_model.fit({EAGER: noisy}, DECLARED)
    errors = [abs((host_model.predict(model, "eager", n) or 0) / true[n] - 1) for n in BATCHES]
    assert max(errors) < 0.1


def test_a_host_that_never_shows_is_null_and_it_is_said() -> None:
    (model,) = host_model.fit({JIT: times(0.0, 0.1, 0.1, BATCHES)}, DECLARED)
    assert model.host_ms["jit"] is None
    assert "its host never shows" in model.reason
    assert host_model.predict(model, "jit", 32) == pytest.approx(3.3)


def test_a_device_that_never_shows_has_no_slope() -> None:
    (model,) = host_model.fit({JIT: dict.fromkeys(BATCHES, 2.0)}, DECLARED)
    assert host_model.predict(model, "jit", 1000) == pytest.approx(2.0)


def curve(slope: float, at: float, spread: float, batches: list[int] = BATCHES) -> crossing.Curve:
    """a / b = (batch / at) ** slope, with windows that spread."""
    generator = np.random.default_rng(3)
    found = {}
    for batch in batches:
        a, b = (batch / at) ** slope, 1.0
        found[batch] = tuple(
            [(value * np.exp(generator.normal(0, spread, 10))).tolist() for _ in range(2)] for value in (a, b)
        )
    return found  # type: ignore[return-value]


def test_curves_cross_where_the_formula_says() -> None:
    (found,) = crossing.find("torch", "jax", curve(1.0, 11.0, 1e-9))
    assert found.batch == pytest.approx(11.0, rel=1e-6)
    assert (found.below, found.above) == ("torch", "jax")
    assert found.ci95 == pytest.approx([11.0, 11.0], rel=1e-6)


def test_curves_that_cross_twice_say_so_twice() -> None:
    """a is faster between 3 and 40 alone; the straight lines between batches move a crossing a little."""
    generator = np.random.default_rng(5)
    twice: dict[int, Any] = {}
    for batch in BATCHES:
        ratio = np.exp(np.log(batch / 3) * np.log(batch / 40) / 4)
        twice[batch] = [
            [(value * np.exp(generator.normal(0, 1e-3, 10))).tolist() for _ in range(2)]
            for value in (ratio, 1.0)
        ]
    first, second = crossing.find("a", "b", twice)
    assert first.batch == pytest.approx(3, rel=0.15) and second.batch == pytest.approx(40, rel=0.15)
    assert [(one.below, one.above) for one in (first, second)] == [("b", "a"), ("a", "b")]
    for one in (first, second):
        assert one.ci95[0] is not None and one.ci95[1] is not None
        assert one.ci95[0] <= one.batch <= one.ci95[1] < 1.1 * one.ci95[0]
    text = "\n".join(
        bench_table.notes(
            result_of(SimpleNamespace(crossings=[first, second], batches=BATCHES, points=[], fitted=[]))
        )
    )
    assert "b is faster below batch" in text and "on it is b again [a / b]" in text


def test_curves_that_touch_do_not_cross() -> None:
    equal = {1: ([[1.0] * 4], [[2.0] * 4]), 4: ([[1.0] * 4], [[1.0] * 4]), 16: ([[1.0] * 4], [[2.0] * 4])}
    (found,) = crossing.find("a", "b", equal)
    assert (found.batch, found.below, found.above) == (None, "a", "a")
    equal[16] = ([[2.0] * 4], [[1.0] * 4])
    (found,) = crossing.find("a", "b", equal)
    assert found.batch == pytest.approx(4) and (found.below, found.above) == ("a", "b")


def test_a_crossing_that_some_draws_have_not_lies_on_the_side_that_they_show() -> None:
    """a is the slower one at 16 by a hair: in draws without that, it is still the faster one to the end."""
    hair: dict[int, Any] = {
        batch: ([[ratio] * 7] * 2, [[1.0] * 7] * 2)
        for batch, ratio in ((1, 0.5), (4, 0.9), (64, 0.9), (256, 0.5))
    }
    hair[16] = ([[0.96] * 3 + [1.02] * 4] * 2, [[1.0] * 7] * 2)
    first, second = crossing.find("a", "b", hair)
    assert first.ci95[0] is not None and first.ci95[1] is None
    assert second.ci95[0] is None and second.ci95[1] is not None
    text = "\n".join(
        bench_table.notes(
            result_of(SimpleNamespace(crossings=[first, second], batches=sorted(hair), points=[], fitted=[]))
        )
    )
    assert "to none within the sweep)" in text and "(95 % none within the sweep to" in text


def test_the_interval_of_a_crossing_holds_it_and_grows_with_the_spread() -> None:
    narrow, wide = (crossing.find("a", "b", curve(1.0, 11.0, spread))[0] for spread in (0.02, 0.3))
    assert narrow.ci95[0] is not None and narrow.ci95[1] is not None
    assert narrow.ci95[0] < 11 < narrow.ci95[1]
    assert wide.ci95[0] is not None and wide.ci95[1] is not None
    assert wide.ci95[1] / wide.ci95[0] > narrow.ci95[1] / narrow.ci95[0]


def test_curves_that_do_not_cross_have_no_crossing() -> None:
    (found,) = crossing.find("a", "b", curve(1.0, 1000.0, 0.01))
    assert (found.batch, found.ci95, found.below, found.above) == (None, [], "a", "a")


def test_a_crossing_near_the_end_may_lie_beyond_it() -> None:
    (found,) = crossing.find("a", "b", curve(0.2, 250.0, 0.2))
    assert found.batch is None or found.ci95[1] is None


def swept(folder: Path, batches: list[int]) -> None:
    """Three batches of two contenders, the first call broken off after two of them."""
    blocks, number = [], 1
    for batch in batches:
        torch, jax = max(4.0, 0.1 * batch), 0.5 + 0.2 * batch
        blocks.append(
            block(folder, {EAGER: [[torch] * 5] * 2, JIT: [[jax] * 5] * 2}, batch=batch, first=number)
        )
        number += 4
    called(folder, *blocks, ended="interrupted")


def test_a_sweep_goes_on_with_the_batches_that_are_not_whole(tmp_path: Path, plan: Plan) -> None:
    axis = sweep.parse("batch=1..64", plan)
    assert axis is not None
    swept(run_folder(tmp_path, sweep=axis.declared()), [1, 2, 4])
    assert sweep.left(axis, tmp_path, calls(tmp_path), [EAGER, JIT]) == [8, 16, 32, 64]
    assert sweep.left(axis, tmp_path, calls(tmp_path), [EAGER, JIT, GRAPH]) == list(axis.batches)


def test_what_a_sweep_shows(tmp_path: Path, plan: Plan) -> None:
    axis = sweep.parse("batch=1..64", plan)
    assert axis is not None
    swept(run_folder(tmp_path, sweep=axis.declared()), list(axis.batches))
    found = sweep.results(axis, tmp_path, calls(tmp_path), "cpu")
    assert {(point.batch, point.fitted) for point in found.points} == {
        (batch, batch in (1, 2, 32, 64)) for batch in axis.batches
    }
    (one,) = found.crossings
    # 0.5 + 0.2 n = 4 at 17.5; interpolation in logarithms is no exact fit of a sum.
    assert one.batch == pytest.approx(17.5, rel=0.1)
    assert (one.below, one.above) == ("jax jit", "torch eager")
    assert found.within[1] == 6
    text = "\n".join(bench_table.notes(result_of(found)))
    assert "jax jit is faster below batch 1" in text and "fitted on batches 1, 2, 32, 64" in text
    heads, lines = bench_table.table(result_of(found))
    assert heads == ["batch", "torch eager", "jax jit", "model"]
    assert [line[0] for line in lines] == [str(batch) for batch in axis.batches]
    assert [line[-1] for line in lines].count("predicts") == 3


def broken_off(folder: Path, plan: Plan, jax: list[int], torch: list[int]) -> str:
    """What is told of a sweep of 1..16 in which each side was measured at these batches."""
    axis = sweep.parse("batch=1..16", plan)
    assert axis is not None
    run_folder(folder, sweep=axis.declared())
    blocks = []
    for number, batch in enumerate(axis.batches):
        own = {EAGER: [[4.0] * 5] * 2 * (batch in torch), JIT: [[0.5 + 0.2 * batch] * 5] * 2 * (batch in jax)}
        blocks.append(block(folder, own, batch=batch, first=4 * number + 1))
    called(folder, *blocks, ended="interrupted")
    result = result_of(sweep.results(axis, folder, calls(folder), "cpu"))
    table = [f"{line[0]} {line[-1]}" for line in bench_table.table(result)[1]]
    return "\n".join([*table, *bench_table.notes(result)])


def test_a_sweep_that_was_broken_off_claims_what_was_measured(tmp_path: Path, plan: Plan) -> None:
    text = broken_off(tmp_path, plan, jax=[1, 2], torch=[1, 2, 4])
    assert text.startswith("1 fitted on\n2 fitted on\n4 predicts\n8 not measured\n16 not measured\n")
    assert "torch eager at batches 1 and 2, all that both were measured at: whether" in text
    assert "at every batch" not in text and "they do not cross" not in text
    assert "fitted on batches 1, 2\nit was to be fitted on 8 and 16 too, not measured\n" in text


def test_a_model_names_who_was_not_measured_where_others_were(tmp_path: Path, plan: Plan) -> None:
    text = broken_off(tmp_path, plan, jax=[1, 2, 8], torch=[1, 2, 8, 16])
    assert "fitted on batches 1, 2, 8, 16\nof jax jit on 1, 2 and 8 alone" in text
    assert "nothing is predicted: none of the others was measured" in text
    text = broken_off(tmp_path / "none", plan, jax=[4], torch=[4])
    assert "no model: none of the batches that it is fitted on was measured" in text


def test_one_measured_batch_makes_no_model(tmp_path: Path, plan: Plan) -> None:
    text = broken_off(tmp_path, plan, jax=[], torch=[1])
    assert text.startswith("1 no model\n2 not measured\n")
    assert "no model: nobody was measured at two of 1, 2, 8 and 16, the batches that" in text
    assert "never shows" not in text and "predicted" not in text and "host" not in text
    (model,) = host_model.fit({EAGER: {1: 1.145}}, DECLARED)
    assert (model.host_ms, model.device_ms, model.device_ms_per_row) == ({"eager": None}, None, None)
    assert model.reason == "one declared batch alone of eager was measured, and a model needs 2"


def test_who_has_one_batch_has_no_model_beside_one_who_has_more(tmp_path: Path, plan: Plan) -> None:
    text = broken_off(tmp_path, plan, jax=[1, 4], torch=[1, 2, 4])
    assert text.startswith("1 fitted on\n2 fitted on\n4 predicts\n8 not")
    assert "of jax jit on none of them" in text and "one declared batch alone of jit was measured" in text
    assert "1 of 1 points; the worst is torch eager at batch 4" in text
    axis = sweep.parse("batch=1..16", plan)
    assert axis is not None
    for point in sweep.results(axis, tmp_path, calls(tmp_path), "cpu").points:
        assert (point.predicted_ms is None) == (point.side == "jax")


def test_a_sweep_of_declared_batches_alone_does_not_claim_those_not_measured(
    tmp_path: Path, plan: Plan
) -> None:
    axis = sweep.parse("batch=1..8", plan)
    assert axis is not None and axis.fitted == axis.batches
    swept(run_folder(tmp_path, sweep=axis.declared()), [1, 2])
    text = "\n".join(bench_table.notes(result_of(sweep.results(axis, tmp_path, calls(tmp_path), "cpu"))))
    assert "it was to be fitted on 4 and 8 too, not measured" in text
    assert "nothing is predicted: every batch is one that the model was to be fitted on" in text


def test_a_crossing_of_a_part_says_of_which() -> None:
    (found,) = crossing.find("torch", "jax", curve(1.0, 3.0, 0.01, [1, 2, 4]))
    assert found.batches == [1, 2, 4]
    text = "\n".join(
        bench_table.notes(
            result_of(SimpleNamespace(crossings=[found], batches=BATCHES, points=[], fitted=[]))
        )
    )
    assert "[torch / jax], by batches 1, 2 and 4, all that both were measured at" in text


def result_of(found: Any) -> Any:
    """As much of a result as the table of a sweep reads."""

    return SimpleNamespace(command="bench", bench=[], sweep=found, speed=None, invocations=[], warnings=[])
