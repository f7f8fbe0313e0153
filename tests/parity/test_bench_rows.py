"""Benchmarks that several calls measured: rows, ratios within a block alone, what no folder takes."""

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parity import same_work
from parity.bench.blocks import alone, calls, check_goes_on, last_launch, last_pass
from parity.bench.command import go_on, going_on, is_clear
from parity.bench.contenders import contenders, why_not
from parity.bench.rows import rows, told
from parity.options import Bench
from parity.plan import Plan, make_plan
from parity.report import bench_table
from parity.report.page import conditions
from parity.report.page.costs import Contender
from parity.report.page.folder import RunFolder
from parity.report.page.speed import timed
from parity.report.rows import speed_phrase
from parity.report.speeds import Ratio
from spec.errors import RuleError
from spec.params import ParamSpec
from spec.presets import preset, run_spec
from spec.run import DataSpec, Execution, RunSpec
from spec.workloads.pair import PairSizes
from tests.parity.timed import ENVIRONMENT, block, called, run_folder, time_pass

EAGER, STOCK, COMPILE, JIT = (
    ("torch", "eager"),
    ("torch", "baseline:eager"),
    ("torch", "baseline:compile"),
    ("jax", "jit"),
)


def windows(step_ms: float) -> list[list[float]]:
    return [[step_ms * (1 + 0.001 * i) for i in range(6)]] * 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A benchmark of two calls; the machine was twice as slow in the second."""
    run_folder(tmp_path)
    called(tmp_path, block(tmp_path, {EAGER: windows(2.0), STOCK: windows(3.0), JIT: windows(1.0)}))
    called(
        tmp_path, block(tmp_path, {EAGER: windows(4.0), STOCK: windows(6.0), COMPILE: windows(5.0)}, first=7)
    )
    return tmp_path


def test_ratios_are_formed_within_a_call_and_never_across(folder: Path) -> None:
    found = {(row.invocation, row.mode): row for row in rows(folder, calls(folder))}
    assert [key[0] for key in found] == [1, 1, 1, 2, 2, 2]
    # 6 ms over 4 ms of its own call, and not over the 2 ms of the other.
    for call in (1, 2):
        ratio = found[call, "baseline:eager"].ratio_to_own
        assert ratio is not None and ratio.median == pytest.approx(1.5, rel=1e-2)
    assert found[1, "eager"].ratio_to_own is None
    # Each side's own step says so itself, whichever sides the last call had.
    assert [key for key, row in found.items() if row.is_own] == [(1, "eager"), (1, "jit"), (2, "eager")]
    assert (found[1, "eager"].peer, found[2, "eager"].peer) == ("baseline:eager", "baseline:compile")
    to_peer = found[2, "baseline:eager"].ratio_to_peer
    assert to_peer is not None and to_peer.median == pytest.approx(1.2, rel=1e-2)
    assert found[2, "baseline:compile"].ratio_to_peer is None
    assert found[1, "jit"].peer is None


def test_the_page_draws_a_row_from_the_windows_of_its_call(folder: Path) -> None:
    row = next(row for row in rows(folder, calls(folder)) if (row.invocation, row.mode) == (2, "eager"))
    one = Contender("torch", "eager, call 2", "eager", row.speed, row, True)
    drawn = [item.step_ms() for item in timed(one, RunFolder(folder))]
    assert drawn == [pytest.approx(samples) for samples in windows(4.0)]


def test_the_page_says_what_each_call_was_asked(folder: Path) -> None:
    path = folder / "passes" / "007_torch_time_eager" / "job.json"
    path.write_text(path.read_text().replace('"windows": 10', '"windows": 7'))
    told = conditions.asked(RunFolder(folder))
    assert told.count("passes in this order") == 2 and "7 windows" in told


def test_the_fastest_mode_is_named_with_its_doubt(folder: Path) -> None:
    found = [row for row in rows(folder, calls(folder)) if row.invocation == 1]
    eager = next(row for row in found if row.mode == "eager")
    stock = next(row for row in found if row.mode == "baseline:eager")
    assert is_clear(eager, [eager, stock])
    assert stock.ratio_to_own is not None
    stock.ratio_to_own.verdict = "AMBIGUOUS"
    assert not is_clear(eager, [eager, stock]) and not is_clear(stock, [eager, stock])


def test_the_table_names_calls_and_leaves_empty_columns_out(folder: Path) -> None:
    # As much of a result as the table reads.
    result: Any = SimpleNamespace(
        command="bench",
        runs=[SimpleNamespace(modes={"torch": "eager", "jax": "jit"})],
        bench=rows(folder, calls(folder)),
        speed=None,
        sweep=None,
        invocations=[call.told() for call in calls(folder)],
        warnings=[],
    )
    heads, lines = bench_table.table(result)
    assert heads == ["", "call", "step_ms", "dispatch_us", "steps", "/ own step", "/ best peer"]
    assert lines[0][:2] == ["torch eager", "1"] and lines[0][-2] == "own"
    assert (
        lines[0][-1].startswith("eager: 0.")
        and lines[0][-1].endswith(" FASTER")
        and lines[1][-1] == "the best peer"
    )
    notes = list(bench_table.notes(result))
    assert notes[0] == (
        "every pass was timed from the initial state: put back after warm-up, and equal to the bit"
    )
    assert notes[1].startswith("no column for launch_us") and "needs a trace" in notes[1]
    assert [note for note in notes if note.startswith("call 2: ")]


def test_the_speed_of_several_calls_names_the_newest(folder: Path) -> None:
    ratio = Ratio(median=0.5, ci95=[0.4, 0.6], passes=[0.5], settle="more windows")
    result: Any = SimpleNamespace(
        speed=SimpleNamespace(ratio=ratio, verdict="FASTER"),
        invocations=[call.told() for call in calls(folder)],
        command="bench", bench=[], sweep=None, warnings=[],
    )  # fmt: skip
    assert speed_phrase(result).startswith("speed: call 2: torch 2.00x faster than jax")
    assert "call 2: torch / jax is AMBIGUOUS; what would settle it: more windows" in bench_table.notes(result)
    result.invocations = result.invocations[:1]
    assert speed_phrase(result).startswith("speed: torch 2.00x faster than jax")


def test_a_broken_off_call_shows_what_it_finished(tmp_path: Path) -> None:
    run_folder(tmp_path)
    called(tmp_path, block(tmp_path, {EAGER: windows(2.0)[:1], STOCK: windows(3.0)[:1], JIT: []}), ended=None)
    found = rows(tmp_path, calls(tmp_path))
    assert [row.mode for row in found] == ["eager", "baseline:eager"]
    assert [one.kind for one in told(tmp_path, calls(tmp_path))] == ["one pass", "one pass"]
    assert calls(tmp_path)[0].told().ended == "killed"


@pytest.fixture
def plan() -> Plan:
    return make_plan(Bench(preset="toy-mlp", steps=10, device="cpu"))


def test_a_benchmark_goes_on_where_all_is_as_it_was(folder: Path, plan: Plan) -> None:
    check_goes_on(folder, plan, None, ENVIRONMENT)
    # Another machine of the kind: ratios are not formed across calls anyway.
    check_goes_on(folder, plan, None, ENVIRONMENT | {"host_hash": "bbbb"})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"packages": {"torch": "2.12.0", "jax": "0.11.2"}}, "torch 2.11.0, now 2.12.0"),
        ({"cpu": {"model": "another CPU", "usable": 2}}, "device a CPU, 2 cores, now another CPU, 2 cores"),
        ({"code": {"commit": "decaf", "dirty": False, "diff_sha256": None}}, "code c0ffee, now decaf"),
    ],
)
def test_another_device_or_version_is_refused(
    folder: Path, plan: Plan, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(RuleError, match=words):
        check_goes_on(folder, plan, None, ENVIRONMENT | changes)


def test_the_number_of_steps_sets_no_benchmarks_apart(folder: Path) -> None:
    """They repeat the same batches: `parity bench --into` without the first call's --steps goes on."""
    check_goes_on(folder, make_plan(Bench(preset="toy-mlp", device="cpu")), None, ENVIRONMENT)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 3}, "this call: seed_weights 0/3; seed_data 1/4$"),
        ({"global_batch": 16}, "this call: global batch 8/16$"),
        (
            {"preset": "tiny", "precision": "f64", "devices": 1, "global_batch": 8},
            "preset toy-mlp/tiny; prec",
        ),
        ({"devices": 2, "global_batch": 8}, "this call: devices 1/2$"),
        ({"mode": "torch=inductor"}, "this call: own torch step eager/inductor$"),
    ],
)
def test_another_problem_is_refused_with_what_differs_and_nothing_else(
    folder: Path, changes: dict[str, Any], words: str
) -> None:
    other = make_plan(Bench(**{"preset": "toy-mlp", "global_batch": 8, "device": "cpu"} | changes))
    with pytest.raises(RuleError) as caught:
        check_goes_on(folder, other, None, ENVIRONMENT)
    assert re.search(words, caught.value.numbers), caught.value.numbers


@pytest.mark.parametrize(
    ("typed", "printed"),
    [
        ("bench micro --sweep batch=1..8", "parity bench micro --sweep batch=1..8 --into 0007 adds to it"),
        ("bench micro --into 7 --windows 3", "parity bench micro --windows 3 --into 0007 adds to it"),
        ("bench micro --into=last", "parity bench micro --into 0007 adds to it"),
        ("bench micro --json - --out o", "parity bench micro --out o --json - --into 0007 adds to it"),
        (
            "bench --json a.json micro",
            "parity bench micro --into 0007 adds to it (--json a.json holds what there is: "
            "name another file)",
        ),
    ],
)
def test_an_interrupted_call_says_which_command_goes_on(typed: str, printed: str) -> None:
    assert going_on(typed.split(), "0007") == printed


def test_an_interrupted_benchmark_of_a_pair_is_not_added_to() -> None:
    told = going_on(["bench", "my_pair", "--json", "a.json", "--windows", "3"], None)
    assert told == (
        "parity bench my_pair --windows 3 measures all of it anew: nothing is added to the run of a pair "
        "(--json a.json holds what there is: name another file)"
    )
    held: Any = [SimpleNamespace(ended=SimpleNamespace(how="interrupted"))]
    (reason,) = go_on(Path("runs/0002_my_pair"), held, [], ["bench", "my_pair"], is_pair=True)
    assert reason.startswith("no pass was finished; parity bench my_pair measures") and "--into" not in reason


def test_another_sweep_is_refused(folder: Path, plan: Plan) -> None:
    with pytest.raises(RuleError, match="this call: sweep over nothing/batches 1,2\n"):
        check_goes_on(folder, plan, {"batches": [1, 2], "fitted": [1, 2]}, ENVIRONMENT)


def test_data_of_ones_own_set_two_problems_apart() -> None:
    own = run_spec("tiny")
    given = dataclasses.replace(
        own,
        problem=dataclasses.replace(own.problem, data=dataclasses.replace(own.problem.data, path="/a.txt")),
    )
    assert same_work.differences(own, given, any_steps=True) == ["data its own//a.txt"]


def test_two_parameter_tables_are_told_apart_by_what_differs() -> None:
    rows = [ParamSpec(name=name, shape=(2,), init="zeros") for name in "abcdefg"]

    def told(*parameters: ParamSpec) -> str:
        sizes = [PairSizes(pair="mine", parameters=table) for table in (tuple(rows), parameters)]
        batches, toy = DataSpec(kind="folder", path="batches"), preset("toy-mlp").problem
        problems = [dataclasses.replace(toy, workload="pair", sizes=one, data=batches) for one in sizes]
        (found,) = same_work.differences(
            *(RunSpec(name="mine", problem=one, execution=Execution()) for one in problems), any_steps=True
        )
        return found

    assert told(*rows[:1]) == "parameters 7/1 tensors; only the first has b, c, d and 3 more"
    wider = dataclasses.replace(rows[0], shape=(3,))
    assert told(wider, *rows[1:]) == "parameters 7/7 tensors; unequal are a: shape [2]/[3]"
    assert told(*rows[::-1]) == "parameters 7/7 tensors; in another order"


def test_a_run_that_is_no_benchmark_is_refused(tmp_path: Path, plan: Plan) -> None:
    time_pass(run_folder(tmp_path) / "passes" / "001_torch_time", EAGER, [1.0])
    with pytest.raises(RuleError, match="--into names a benchmark"):
        check_goes_on(tmp_path, plan, None, ENVIRONMENT)


def test_what_a_broken_off_call_did_not_make_is_not_taken_for_what_a_later_one_makes(tmp_path: Path) -> None:
    """Names of passes are planned beforehand, so those of a later call begin behind them."""
    run_folder(tmp_path)
    called(tmp_path, block(tmp_path, {EAGER: windows(2.0)[:1], JIT: []}), ended="interrupted")
    assert last_pass(tmp_path) == 4
    assert last_launch(tmp_path) == 0
    (tmp_path / "launches").mkdir()
    (tmp_path / "launches" / "007_jax.log").write_text("")
    assert last_launch(tmp_path) == 7


def test_two_benchmarks_at_once_in_one_folder_are_refused(tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(RuleError, match="in use"), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass


def test_all_baselines_are_those_that_this_device_can_run() -> None:
    options = Bench(preset="toy-mlp", device="cpu", baselines="all")
    chosen, left_out = contenders(make_plan(options), options)
    assert ("torch", "baseline:eager") in chosen and ("jax", "baseline:jit") in chosen
    assert ("torch", "baseline:reduce-overhead") not in chosen
    assert [line.split(": ")[0] for line in left_out if "reduce-overhead" in line] == [
        "baseline torch:reduce-overhead is left out"
    ]
    assert chosen[0] == EAGER and [side for side, _ in chosen] == sorted(
        (side for side, _ in chosen), reverse=True
    )


@pytest.mark.parametrize(
    ("name", "device", "world_size", "can"),
    [
        ("eager", "cuda", 1, True),
        ("eager", "cuda", 2, False),
        ("ddp", "cuda", 2, True),
        ("ddp", "cuda", 1, False),
        ("reduce-overhead", "cuda", 1, True),
        ("compile", "cuda", 2, True),
    ],
)
def test_which_baselines_can_run(name: str, device: str, world_size: int, can: bool) -> None:
    assert (why_not("torch", name, device, world_size) is None) == can
