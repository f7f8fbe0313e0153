"""Speeds of two saved runs: which are held against each other, what fails, and what is only noise."""

import json
from pathlib import Path
from typing import Any

import pytest

from parity import against, cli
from parity.options import Bench, Run
from parity.plan import Plan, make_plan
from parity.speed.machine import difference
from parity.speed.regression import change, parse_limits
from spec.errors import ExitCode, RuleError
from spec.presets import run_spec
from spec.run import Execution, RunSpec
from tests.parity.timed import ENVIRONMENT, block, called, run_folder, spec_of, time_pass, with_steps

EAGER, JIT = ("torch", "eager"), ("jax", "jit")
QUIET = [1.0, 1.01, 0.99, 1.0, 1.02, 1.0, 0.98, 1.01]
NOISY = [1.0, 1.5, 0.7, 1.3, 0.8, 1.6, 0.6, 1.1]


def test_limits_as_they_are_typed() -> None:
    share, amount, memory = parse_limits(["step_ms.median:5%", "step_ms.p90:20us", "peak_mem_bytes:10MB"])
    assert share.allows(10.0, 10.5) and not share.allows(10.0, 10.51)
    assert amount.amount == pytest.approx(0.02)
    assert memory.amount == 10_000_000


@pytest.mark.parametrize(
    "text", ["step_ms:5%", "step_ms.median", "step_ms.median:5", "launch_us.median:5MB", ":"]
)
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(RuleError):
        parse_limits([text])


def held(tmp_path: Path, before: list[float], now: list[float], *limits: str, **options: Any) -> Any:
    figure = parse_limits(limits)[0].figure
    a, b = (
        [time_pass(tmp_path / name / str(i), EAGER, windows, **options) for i in range(2)]
        for name, windows in (("before", before), ("now", now))
    )
    return change(figure, a, b, parse_limits(limits), side="torch", mode="eager", batch=8)


def test_a_slower_step_beyond_limit_and_noise_fails(tmp_path: Path) -> None:
    found = held(tmp_path, QUIET, [1.1 * each for each in QUIET], "step_ms.median:5%")
    assert (found.beyond_limit, found.beyond_noise, found.failed) == (True, True, True)
    assert found.ratio.median == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("before", "factor", "limit", "beyond_limit", "beyond_noise"),
    [
        (QUIET, 1.1, "step_ms.median:15%", False, True),
        (QUIET, 0.9, "step_ms.median:5%", False, True),
        (NOISY, 1.1, "step_ms.median:5%", True, False),
        (QUIET, 1.1, "step_ms.median:200us", False, True),
        (QUIET, 1.0, "step_ms.p90:0%", False, False),
    ],
)
def test_what_does_not_fail(
    tmp_path: Path, before: list[float], factor: float, limit: str, beyond_limit: bool, beyond_noise: bool
) -> None:
    found = held(tmp_path, before, [factor * each for each in before], limit)
    assert (found.beyond_limit, found.beyond_noise) == (beyond_limit, beyond_noise)
    assert not found.failed


def test_memory_has_no_interval_and_counts_as_it_is(tmp_path: Path) -> None:
    a, b = (
        [time_pass(tmp_path / str(size), EAGER, QUIET, peak_mem_bytes=size)] for size in (100_000, 130_000)
    )
    (limit,) = parse_limits(["peak_mem_bytes:20kB"])
    found = change("peak_mem_bytes", a, b, [limit], side="torch", mode="eager", batch=8)
    assert found is not None and found.failed
    assert change("launch_us.median", a, b, [limit], side="torch", mode="eager", batch=8) is None


@pytest.mark.parametrize(
    ("change_of", "kind"),
    [
        ({"host_hash": "bbbb"}, "host"),
        ({"cpu": {"model": "another", "usable": 2}}, "device"),
        ({"packages": {"torch": "2.12.0", "jax": "0.11.2"}}, "versions"),
        ({"variables": {}}, "versions"),
        ({"code": {"commit": "c0ffee", "dirty": True, "diff_sha256": "1234567890ab"}}, "versions"),
    ],
)
def test_what_of_the_surroundings_differs(change_of: dict[str, Any], kind: str) -> None:
    found = difference(ENVIRONMENT, ENVIRONMENT | change_of, "cpu")
    assert {name for name in ("device", "host", "versions") if getattr(found, name)} == {kind}


def test_another_gpu_of_the_same_kind_is_another_host() -> None:
    one, other = ({"gpus": [{"name": "NVIDIA H200", "uuid": name}]} for name in ("GPU-1", "GPU-2"))
    found = difference(ENVIRONMENT | one, ENVIRONMENT | other, "cuda")
    assert (found.device, found.host) == ([], ["GPU GPU-1, now GPU-2"])


def saved_run(out: Path, number: int, torch_ms: float, **changes: Any) -> Path:
    folder = run_folder(out / f"{number:04d}_toy-mlp_c0ffee_20260101T000000Z", **changes)
    windows = [[torch_ms * each for each in QUIET]] * 2
    block(folder, {EAGER: windows, JIT: [QUIET] * 2})
    return folder


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is the one that the saved runs were made on."""
    monkeypatch.setattr(against, "describe_environment", lambda: ENVIRONMENT)


def asked(tmp_path: Path, **options: Any) -> tuple[Bench, Plan]:
    bench = Bench(preset="toy-mlp", steps=10, device="cpu", out=str(tmp_path), **options)
    return bench, make_plan(bench)


def test_last_is_the_newest_run_of_the_same_problem_and_modes(tmp_path: Path, here: None) -> None:
    saved_run(tmp_path, 1, 1.0)
    saved_run(tmp_path, 2, 1.0)
    run_folder(tmp_path / "0003_toy-mlp_c0ffee_20260101T000000Z")
    other = run_folder(tmp_path / "0004_toy-mlp_c0ffee_20260101T000000Z")
    spec = with_steps(spec_of(), 99)
    time_pass(other / "passes" / "001_torch_time", EAGER, QUIET, spec)
    time_pass(other / "passes" / "002_jax_time", JIT, QUIET, spec)
    found = against.find(*asked(tmp_path, against="last"))
    assert found is not None and found.folder.name.startswith("0002")
    assert {key[:2] for key in found.timed} == {EAGER, JIT}


@pytest.mark.parametrize("file", ["run.json", "passes/*/job.json"])
def test_a_damaged_run_does_not_block_the_last(
    tmp_path: Path, here: None, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    saved_run(tmp_path, 1, 1.0)
    damaged = saved_run(tmp_path, 2, 1.0)
    min(damaged.glob(file)).write_text("{")
    found = against.find(*asked(tmp_path, against="last"))
    assert found is not None and found.folder.name.startswith("0001")
    assert f"passed over {damaged.name}: " in capsys.readouterr().err


def test_a_run_of_another_problem_is_refused(tmp_path: Path, here: None) -> None:
    folder = run_folder(tmp_path / "0001_toy-mlp_c0ffee_20260101T000000Z")
    time_pass(folder / "passes" / "001_torch_time", EAGER, QUIET, with_steps(spec_of(), 99))
    with pytest.raises(RuleError, match="has no time pass of jax jit, torch eager"):
        against.find(*asked(tmp_path, against="1"))
    with pytest.raises(RuleError, match="make it once without --against"):
        against.find(*asked(tmp_path, against="last"))


def test_a_run_that_cannot_be_read_is_refused_before_anything_is_measured(tmp_path: Path, here: None) -> None:
    damaged = min(saved_run(tmp_path, 1, 1.0).glob("passes/*/windows.jsonl"))
    damaged.write_text(damaged.read_text() + "{\n")
    with pytest.raises(RuleError, match="record"):
        against.find(*asked(tmp_path, against="1"))


def test_another_host_is_refused_unless_asked_for(tmp_path: Path, here: None) -> None:
    saved_run(tmp_path, 1, 1.0, host_hash="bbbb")
    with pytest.raises(RuleError, match="host bbbb, now aaaa"):
        against.find(*asked(tmp_path, against="last"))
    found = against.find(*asked(tmp_path, against="last", across_devices=True))
    assert found is not None and found.changed.host


def test_a_limit_without_a_run_to_hold_it_against_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="add --against last"):
        against.find(*asked(tmp_path, fail_if=("step_ms.median:5%",)))


def test_a_guard_that_would_hold_nothing_is_refused(tmp_path: Path, here: None) -> None:
    saved_run(tmp_path, 1, 1.0)
    limit = ("step_ms.median:5%",)
    with pytest.raises(RuleError, match="peak_mem_bytes:10MB, which is null in 0001"):
        against.find(*asked(tmp_path, against="last", fail_if=("peak_mem_bytes:10MB",)))
    with pytest.raises(RuleError, match="steps of 64 rows"):
        against.find(*asked(tmp_path, against="last", fail_if=limit, global_batch=64))
    with pytest.raises(RuleError, match="has no time pass of jax jit, torch eager"):
        against.find(*asked(tmp_path, against="1", fail_if=limit, global_batch=64))
    assert against.find(*asked(tmp_path, against="last", fail_if=limit, sweep="batch=8,64")) is not None
    run = Run(preset="toy-mlp", steps=10, device="cpu", out=str(tmp_path), against="last", time=False)
    with pytest.raises(RuleError, match="is timed"):
        against.find(run, make_plan(run))


@pytest.mark.parametrize(
    ("a", "b", "graver"),
    [(6, 3, 6), (5, 3, 5), (1, 3, 1), (0, 3, 3), (4, 3, 3), (2, 3, 2)],
)
def test_the_order_of_exit_codes(a: int, b: int, graver: int) -> None:
    assert against.graver(ExitCode(a), ExitCode(b)) == graver


def compared(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = cli.main(["compare", "1", "2", "--out", str(tmp_path), *words])
    return code, capsys.readouterr().out


def test_saved_benchmarks_are_compared_by_their_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    saved_run(tmp_path, 1, 1.0)
    saved_run(tmp_path, 2, 1.1)
    code, text = compared(tmp_path, capsys)
    assert (code, text.splitlines()[0]) == (0, "compare: toy-mlp strict, toy-mlp strict")
    assert "torch eager step_ms.median" in text and "x1.100 (95 % 1." in text
    code, text = compared(tmp_path, capsys, "--fail-if", "step_ms.median:5%")
    assert (code, text.splitlines()[0].split("   ")[1]) == (3, "SLOWER than 0001: torch step_ms.median")
    assert "torch eager step_ms.median is 1.1, was 1 in 0001: x1.100" in text
    code, text = compared(tmp_path, capsys, "--fail-if", "step_ms.median:5%", "--json", "-")
    content = json.loads(text)
    assert (content["exit_code"], content["verdict"]) == (3, None)
    assert [one["failed"] for one in content["against"]["changes"]] == [True, False]
    assert compared(tmp_path, capsys, "--fail-if", "step_ms.median:15%")[0] == 0
    assert compared(tmp_path, capsys, "--fail-if", "peak_mem_bytes:10MB")[0] == 2


def test_speeds_of_two_hosts_are_left_out_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    saved_run(tmp_path, 1, 1.0)
    saved_run(tmp_path, 2, 1.1, host_hash="bbbb")
    code, text = compared(tmp_path, capsys, "--json", "-")
    content = json.loads(text)
    assert (code, content["against"]) == (0, None)
    assert "another device or host" in content["unmeasured"]["against"]
    assert compared(tmp_path, capsys, "--fail-if", "step_ms.median:5%")[0] == 2
    assert compared(tmp_path, capsys, "--fail-if", "step_ms.median:5%", "--across-devices")[0] == 3


def test_a_benchmark_of_several_calls_stands_for_its_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows of two calls are no figure of either: the machine was twice as slow in the second."""
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    for number in (1, 2):
        folder = saved_run(tmp_path, number, 1.0)
        called(folder, block(folder, {EAGER: [[2.0] * 8] * 2, JIT: [[1.0] * 8] * 2}, first=11))
        called(folder, block(folder, {EAGER: [[4.0] * 8] * 2}, first=15))
    _, text = compared(tmp_path, capsys, "--json", "-")
    changes = json.loads(text)["against"]["changes"]
    now = {one["side"]: one["now"] for one in changes if one["figure"] == "step_ms.median"}
    assert now == {"torch": 4.0, "jax": 1.0}


def saved_bench(out: Path, number: int, spec: RunSpec) -> Path:
    """A benchmark of one call, of any problem."""
    folder = run_folder(out / f"{number:04d}_{spec.name}_c0ffee_20260101T000000Z", spec)
    called(folder, block(folder, {EAGER: [QUIET] * 2, JIT: [QUIET] * 2}, spec=spec))
    return folder


OTHER = "the runs are of different problems: "


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (run_spec("micro", steps=10), f"{OTHER}preset toy-mlp/micro; precision strict/bf16"),
        (run_spec("toy-mlp", precision="bf16"), f"{OTHER}precision strict/bf16"),
        (run_spec("toy-mlp", seed=7), "seed_weights 0/7"),
        (run_spec("toy-mlp", devices=2), "devices 1/2"),
        (spec_of(batch=16), "timed in both: torch own, batch 8; jax own, batch 8 / torch own, batch 16"),
    ],
)
def test_speeds_that_are_not_compared_are_said_to_be_so_and_why(
    spec: RunSpec,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    saved_bench(tmp_path, 1, spec_of())
    saved_bench(tmp_path, 2, spec)
    code, text = compared(tmp_path, capsys)
    (line,) = (line for line in text.splitlines() if line.startswith("speeds were not compared: "))
    assert code == 0 and words in line
    assert cli.main(["compare", "1", "2", "--out", str(tmp_path), "--fail-if", "step_ms.median:5%"]) == 2
    assert words in capsys.readouterr().err


def test_the_steps_of_a_run_do_not_set_benchmarks_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, here: None
) -> None:
    """Their length gives a schedule other learning rates, and a step no other work."""
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    for number, steps in ((1, 10), (2, 50)):
        saved_bench(tmp_path, number, run_spec("tiny", steps=steps, devices=1, execution=Execution()))
    assert "x1.000" in compared(tmp_path, capsys)[1]
    bench = Bench(preset="tiny", steps=20, devices=1, device="cpu", out=str(tmp_path), against="last")
    found = against.find(bench, make_plan(bench))
    assert found is not None and found.folder.name.startswith("0002")
    # The time passes of a run share a process with passes of all its steps.
    run = Run(preset="tiny", steps=20, devices=1, device="cpu", out=str(tmp_path), against="1")
    with pytest.raises(RuleError, match="it and this run differ in steps 10/20"):
        against.find(run, make_plan(run))


def test_each_row_of_two_sweeps_has_its_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    for number, ms in ((1, 1.0), (2, 1.2)):
        folder = run_folder(tmp_path / f"{number:04d}_toy-mlp_c0ffee_20260101T000000Z")
        windows = [[ms * each for each in QUIET]] * 2
        called(folder, *(block(folder, {EAGER: windows}, batch=n, first=3 * n) for n in (4, 8)))
    _, text = compared(tmp_path, capsys)
    assert " torch eager, batch 4, step_ms.median" in text and " torch eager, batch 8, step_ms.median" in text
    _, text = compared(tmp_path, capsys, "--fail-if", "step_ms.median:5%")
    assert "SLOWER than 0001: torch, batch 4, step_ms.median, torch, batch 8, step_ms.median" in text
    assert "torch eager, batch 8, step_ms.median is 1.2" in text


def test_rows_of_a_benchmark_of_several_calls_name_the_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    saved_bench(tmp_path, 1, spec_of())
    folder = saved_bench(tmp_path, 2, spec_of())
    called(folder, block(folder, {EAGER: [QUIET] * 2}, first=11))
    _, text = compared(tmp_path, capsys)
    assert "torch eager, call 2 now, step_ms.median" in text and "jax jit, call 1 now, step_ms.median" in text
    code = cli.main(["compare", "2", "2", "--out", str(tmp_path)])
    assert code == 0 and "torch eager, call 2, step_ms.median" in capsys.readouterr().out
