"""The scaling study as a whole: runs read, predictions kept, what is finished left alone."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.scaling import __main__ as scaling
from benchmarks.scaling import chart, loss, measure, points, prediction, report, table
from benchmarks.scaling.prediction import NodeRecord
from benchmarks.scaling.study import Study
from parity.bench.blocks import calls
from parity.bench.rows import rows
from parity.report.result import read_result, write
from spec import trace
from spec.errors import ExitCode, RuleError
from spec.presets import run_spec
from spec.run import Execution
from tests.parity.conftest import ROOT, environ
from tests.parity.results import empty_result
from tests.parity.timed import block, called, run_folder
from tests.parity.trace_writer import launched_as_a_graph

RESULTS = ROOT / "benchmarks" / "results"
NODE = NodeRecord(devices=8, gb_per_s=40.0, latency_us=10.0)
SHORT = ["--windows", "5", "--steps-per-window", "2", "--calls", "8", "--no-trace"]


def measured(home: Path, devices: int, step_ms: float, minute: int = 0, **changes: object) -> Path:
    """A finished benchmark of toy-mlp: our own step and DDP or eager at twice its time."""
    folder = home / f"000{devices}_toy-mlp"
    spec = run_spec("toy-mlp", devices=devices, execution=Execution(device="cpu"))
    run_folder(folder, spec, utc=f"2026-01-01T00:{minute:02d}:00+00:00", **changes)
    stock = ("torch", "baseline:eager" if devices == 1 else "baseline:ddp")
    found = {("torch", "eager"): [[step_ms] * 3] * 2, stock: [[2 * step_ms] * 3] * 2}
    called(folder, block(folder, found))
    made = calls(folder)
    told = empty_result("bench", bench=rows(folder, made), invocations=[one.told() for one in made])
    write(told, folder / "result.json")
    return folder


def study(out: Path, **changes) -> Study:
    usual = dict(presets=("toy-mlp",), devices=(1, 2), out=out, device="cpu", budget_s=1e9, assumed=NODE)
    return Study(**usual | changes)  # type: ignore[arg-type]


def test_points_are_read_from_run_folders(tmp_path: Path) -> None:
    for devices, ms in ((1, 4.0), (2, 5.0)):
        measured(tmp_path, devices, ms)
    found = points.best(points.read([tmp_path]))
    assert list(found) == [("toy-mlp", name, n) for name in ("torch", "torch ddp") for n in (1, 2)]
    one = found["toy-mlp", "torch", 2]
    assert (one.step_ms.median, one.rows_per_device, one.precision) == (pytest.approx(5.0), 8, "strict")
    # 32 x 128 + 128 + 128 x 32 + 32 parameters of four bytes; three single calls in each of two passes.
    assert one.gradient_bytes == 4 * 8352 and one.draws_ms == pytest.approx((0.1, 0.101, 0.102) * 2)
    assert one.peer == "baseline:ddp" and one.ratio_to_peer and one.ratio_to_peer.median == pytest.approx(0.5)


def test_a_point_takes_the_passes_of_its_own_call_alone(tmp_path: Path) -> None:
    """The first call of a benchmark that was broken off is no part of the rows of the second."""
    folder = measured(tmp_path, 1, 4.0)
    again = block(folder, {("torch", "eager"): [[6.0] * 3] * 2}, first=9)
    called(folder, again)
    result = read_result(folder / "result.json")
    result.bench = rows(folder, calls(folder))
    write(result, folder / "result.json")
    one = points.best(points.read([tmp_path]))["toy-mlp", "torch", 1]
    assert one.step_ms.median == pytest.approx(6.0)
    assert one.windows_ms == (pytest.approx((6.0,) * 3),) * 2


def test_collectives_are_summed_from_a_trace(tmp_path: Path) -> None:
    """The graph of the stand-in has one all-reduce of 80 us a step."""
    assert points.collective_ms(tmp_path) is None
    trace.write(launched_as_a_graph(), tmp_path)
    assert points.collective_ms(tmp_path) == pytest.approx(0.08)


def test_a_prediction_is_made_once_and_before(tmp_path: Path) -> None:
    measured(tmp_path, 1, 4.0)
    measured(tmp_path, 2, 5.0)
    path = prediction.write([tmp_path], 4, tmp_path, NODE)
    before = path.read_bytes()
    with pytest.raises(RuleError, match="made once"):
        prediction.write([tmp_path], 4, tmp_path, NODE)
    with pytest.raises(RuleError, match="before its measurement"):
        prediction.write([tmp_path], 2, tmp_path, NODE)
    assert path.read_bytes() == before
    content = json.loads(before)
    assert set(content["runs"]) == {"0001_toy-mlp", "0002_toy-mlp"} and "draws_ms" not in before.decode()
    # The exposed millisecond of two devices, times (3/4) / (1/2).
    step = next(one for one in content["predictions"] if one["family"] == "torch")["step_ms"]
    assert step["value"] == pytest.approx(4.0 + 1.5) and step["source"] == "predicted"

    measured(tmp_path, 4, 5.0)
    held = {row.family: row for row in report.make([tmp_path], NODE).predictions}
    assert held["torch"].measured_ms.value == pytest.approx(5.0)
    assert held["torch"].error == pytest.approx(0.1)


def test_a_prediction_needs_fewer_devices(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="has measurements"):
        prediction.write([tmp_path], 2, tmp_path, NODE)
    measured(tmp_path, 4, 5.0)
    with pytest.raises(RuleError, match="from smaller numbers"):
        prediction.write([tmp_path], 2, tmp_path, NODE)


def test_the_report_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(tmp_path, 2, 5.0)
    assert scaling.main(["report", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "scaling.json").read_text())
    assert found["measured"][0]["efficiency"] == {
        "value": None, "source": "missing", "how": "its step on one device was not measured",
    }  # fmt: skip
    assert found["reasons"] == {
        "loss": "no loss check lies here", "predictions": "no prediction lies here",
    }  # fmt: skip
    assert "MODEL" in capsys.readouterr().out
    ElementTree.parse(tmp_path / "scaling.svg")


def test_runs_of_several_trees_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for devices in (1, 2):
        measured(tmp_path, devices, 4.0)
    assert scaling.main(["report", str(tmp_path)]) == 0
    assert "Warning" not in capsys.readouterr().out
    measured(tmp_path / "later", 4, 5.0, code={"commit": "c0ffee", "dirty": True, "diff_sha256": "ab" * 32})
    measured(tmp_path / "copied", 8, 5.0, code={"commit": None, "dirty": None, "diff_sha256": None})
    assert scaling.main(["report", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    trees = "c0ffee (0001_toy-mlp, 0002_toy-mlp); c0ffee with changes ababababab (0004_toy-mlp); no checkout"
    assert "**Warning**: the runs were measured with 3 trees of this project" in told and trees in told
    assert "**Warning**: which tree 0008_toy-mlp ran is not known" in told
    assert told.strip() == (tmp_path / "scaling.md").read_text().strip()
    assert len(json.loads((tmp_path / "scaling.json").read_text())["warnings"]) == 2


def test_no_count_has_a_measured_and_a_modelled_value_side_by_side(tmp_path: Path) -> None:
    for devices, ms in ((1, 1.4), (2, 5.6)):
        measured(tmp_path, devices, ms)
    found = report.make([tmp_path], NODE)
    here = [row for row in found.model if row.step.devices in (1, 2)]
    assert len(here) == 4 and all(row.efficiency.value is None for row in here)
    assert [row.error for row in here] == pytest.approx([0.0] * 4)
    page = table.markdown(found)
    (modelled,) = [line for line in page.splitlines() if line.startswith("| toy-mlp | torch | off by")]
    assert modelled.split(" | ")[2:4] == ["off by +0.0 %"] * 2
    assert {devices for devices, _ in chart._modelled(found, "toy-mlp", "torch")}.isdisjoint({1, 2})


def test_the_page_names_what_it_leaves_out() -> None:
    page = (RESULTS / "scaling_h200" / "scaling.md").read_text()
    assert "torch baseline:compile on 1" in page


def test_runs_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    measured(tmp_path, 1, 4.0)
    other = measured(tmp_path / "other", 2, 4.0) / "run.json"
    content = json.loads(other.read_text())
    content["spec"]["problem"]["global_batch"] = 64
    other.write_text(json.dumps(content))
    with pytest.raises(RuleError, match="toy-mlp: 32 rows a device"):
        points.read([tmp_path])


def test_every_count_has_its_contenders() -> None:
    own = [
        ("torch", "graph+inductor"), ("jax", "jit:concurrent"), ("jax", "jit:concurrent+apart+overlap"),
    ]  # fmt: skip
    stock = [("torch", "baseline:eager"), ("torch", "baseline:compile"), ("jax", "baseline:jit")]
    assert measure.contenders("cuda", 1) == own + stock
    assert measure.contenders("cuda", 8) == [*own, ("torch", "baseline:ddp"), ("jax", "baseline:jit")]


def test_what_is_finished_is_not_measured_again(tmp_path: Path) -> None:
    asked = study(tmp_path)
    folder = measured(tmp_path / "bench" / "toy-mlp_2", 2, 5.0)
    left = measure.bench_left(asked, "toy-mlp", 2)
    assert left == [("jax", "jit"), ("jax", "baseline:jit")], "torch has two passes of each"
    words = measure.bench_words(asked, "toy-mlp", 2, left)
    assert words[words.index("--baselines") + 1] == "jax:jit"
    assert words[words.index("--into") + 1] == str(folder)
    alone = measure.bench_left(asked, "toy-mlp", 1)
    assert alone == measure.contenders("cpu", 1)
    assert "--into" not in measure.bench_words(asked, "toy-mlp", 1, alone)


def test_all_counts_share_one_global_batch(tmp_path: Path) -> None:
    for devices in ((1, 2, 4, 8), (1, 3), (16,)):
        for name in ("toy-mlp", "tiny", "gpt2-124m"):
            rows_of = loss.global_batch(study(tmp_path, devices=devices), name)
            for n in devices:
                # What the command refuses is refused here.
                run_spec(name, devices=n, global_batch=rows_of)


def test_no_time_left_starts_nothing(tmp_path: Path) -> None:
    assert measure.measure(study(tmp_path, budget_s=20.0, began=-1e9)) == ExitCode.CRASHED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    ["predict {out} --devices two", "report {out}", "report {out} --node-devices 0",
     "measure --out {out} --presets nano", "measure --out {out} --devices 0,1"],
)  # fmt: skip
def test_a_wrong_command_is_told_in_three_lines(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scaling.main(words.format(out=tmp_path).split()) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert "found: " in told and len(told.splitlines()) <= 3


def test_the_committed_study_follows_from_the_committed_runs(tmp_path: Path) -> None:
    committed = RESULTS / "scaling_h200"
    (tmp_path / "prediction_4.json").write_bytes((committed / "prediction_4.json").read_bytes())
    argv = ["report", str(RESULTS / "bench_h200"), "--out", str(tmp_path)]
    assert scaling.main(argv) == 0
    for name in ("scaling.json", "scaling.md", "scaling.svg"):
        assert (tmp_path / name).read_text() == (committed / name).read_text(), f"make {name} again"
    (made,) = prediction.read([committed])
    assert made.devices == 4 and max(n for one in made.fits for n in one.devices) == 2
    # The code of today predicts what was committed, so that a later error is the model's.
    again = {(row.step.preset, row.step.family, row.step.devices): row.step for row in
             report.make([RESULTS / "bench_h200"], made.assumed).model}  # fmt: skip
    for one in made.predictions:
        assert again[one.preset, one.family, 4].step_ms == one.step_ms
        if one.step_ms.value is not None:
            assert one.ci95_ms is not None and one.ci95_ms[0] <= one.step_ms.value <= one.ci95_ms[1]


def run(argv: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "benchmarks.scaling", *argv]
    return subprocess.run(
        words, cwd=folder, env=environ(fakes=True), capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_study_is_measured_once(tmp_path: Path) -> None:
    """Six commands with stand-ins for the sides: half a minute of starting processes. Their ranks do not part
    rows as real ones do, so that one and two are not comparable; real sides are measured by the test of the
    page about scaling."""
    argv = ["measure", "--presets", "toy-mlp", "--devices", "1,2", "--device", "cpu", "--out", "found"]
    done = run([*argv, *SHORT], tmp_path)
    assert done.returncode == ExitCode.NOT_COMPARABLE, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("parity ")]
    assert [line.split()[1] for line in said] == ["bench", "bench", "run", "run", "compare"]
    assert "2 devices are measured without a prediction" in done.stdout
    again = run(argv, tmp_path)
    assert again.returncode == ExitCode.NOT_COMPARABLE
    assert again.stdout.splitlines()[1:] == ["nothing is left: python -m benchmarks.scaling report found"]
    assert run(["report", "found"], tmp_path).returncode == 0
    found = json.loads((tmp_path / "found" / "scaling.json").read_text())
    assert {row["devices"] for row in found["measured"]} == {1, 2}
    assert [(row["verdict"], row["devices"]) for row in found["loss"]] == [("NOT_COMPARABLE", 2)] * 2
    assert found["predictions"] == [], "one count predicts nothing"
