"""A study that goes on ends with what its loss checks found, and mixes neither batches nor predictions."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.scaling import __main__ as scaling
from benchmarks.scaling import loss, measure, prediction, study
from parity.report.result import write
from spec.errors import ExitCode, RuleError
from tests.parity.results import empty_result
from tests.parity.test_scaling_study import NODE, measured
from tests.parity.test_scaling_study import study as asked

WORDS = "measure --presets toy-mlp --devices 1,2 --device cpu --out {out}"


def compared(path: Path, code: ExitCode) -> None:
    """What `parity compare` leaves, as far as a study reads it."""
    path.parent.mkdir(parents=True)
    write(empty_result("compare", exit_code=int(code)), path)


@pytest.mark.parametrize("code", [0, 1, 4, 5])
def test_a_finished_study_ends_with_its_loss_check_every_time(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "bench_left", lambda *_: None)
    compared(loss.compared(asked(tmp_path), "toy-mlp", 2), ExitCode(code))
    for _ in range(2):
        assert scaling.main(WORDS.format(out=tmp_path).split()) == code
        said = capsys.readouterr().out.splitlines()
        assert said[-1] == f"nothing is left: python -m benchmarks.scaling report {tmp_path}"
        assert len(said) == 1 + (code != 0)


def test_every_global_batch_has_its_own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[list[str]] = []

    def ran(_study: object, words: list[str], _name: str) -> ExitCode:
        said.append(words)
        if words[0] == "run":
            folder = Path(words[words.index("--out") + 1]) / "0001_toy-mlp"
            for side in ("1_torch_run", "2_jax_run"):
                (folder / "passes" / side).mkdir(parents=True)
                (folder / "passes" / side / "done.json").touch()
            problem = {"global_batch": int(words[words.index("--global-batch") + 1]), "steps": 20}
            (folder / "run.json").write_text(json.dumps({"spec": {"problem": problem}}))
        return ExitCode.SAME

    monkeypatch.setattr(loss, "parity", ran)
    for devices, batch in ((2, 8), (3, 9)):
        said.clear()
        loss.check(asked(tmp_path, devices=(1, devices)), "toy-mlp", devices)
        assert [words[0] for words in said] == ["run", "run", "compare"]
        assert [words[words.index("--global-batch") + 1] for words in said[:2]] == [str(batch)] * 2
        about = Path(said[2][said[2].index("--json") + 1]).with_name("about.json")
        assert json.loads(about.read_text())["global_batch"] == batch


@pytest.mark.parametrize("where", ["file", "proc"])
@pytest.mark.parametrize("words", [WORDS, "predict {folder} --devices 4 --out {out}"])
def test_a_place_that_cannot_be_written_is_told_in_three_lines(
    words: str, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for devices, ms in ((1, 4.0), (2, 5.0)):
        measured(tmp_path / "found", devices, ms)
    if where == "proc" and not sys.platform.startswith("linux"):
        pytest.skip("there is no /proc")
    out = Path("/proc/scaling") if where == "proc" else tmp_path / "README.md"
    if where == "file":
        out.write_text("kept")
    line = words.format(out=out, folder=tmp_path / "found")
    assert scaling.main(line.split()) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert f"found: {out}" in told and len(told.splitlines()) == 3


def test_one_count_predicts_nothing_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(tmp_path, 1, 4.0)
    with pytest.raises(RuleError, match=r"has a number.*\n.*measured on 1: .*one device alone"):
        prediction.write([tmp_path], 4, tmp_path, NODE)
    assert not prediction.path_of(tmp_path, 4).exists()
    monkeypatch.setattr(measure, "_bench", lambda *_: ExitCode.SAME)
    monkeypatch.setattr(loss, "check", lambda *_: ExitCode.SAME)
    measure.measure(asked(tmp_path))
    said = capsys.readouterr().out
    assert "2 devices are measured without a prediction" in said and "predicted 2" not in said

    measured(tmp_path, 2, 5.0)
    # That it is too late for 2 stops nothing.
    assert measure.measure(asked(tmp_path)) == ExitCode.SAME
    assert prediction.write([tmp_path], 4, tmp_path, NODE).exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [("predict {out} --devices 4,8", "one count a call"), ("predict {out} --devices 0", "from 1 on"),
     ("measure --out {out} --devices 0", "mend:  --devices 1,2"),
     ("measure --out {out} --budget-s 5", "--budget-s 5, at least 20"),
     ("measure --out {out} --budget-s nan", "at least 20")],
)  # fmt: skip
def test_wrong_numbers_are_told_with_a_mend(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scaling.main(words.format(out=tmp_path).split()) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert said in told and len(told.splitlines()) == 3


def test_a_failed_step_says_what_was_found(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("An older call.\n  found: 1\n")
    begin = log.stat().st_size
    error = RuleError("Devices exist.", "8 of 2", "ask for 2")
    log.write_text(log.read_text() + f"starting\n{error.message()}\n")
    assert study.last_words(log, begin) == ["Devices exist.", "found: 8 of 2", "mend:  ask for 2"]
    log.write_text("starting\nfound: long ago\none\ntwo\nKilled\n\n")
    assert study.last_words(log, 0) == ["Killed"]
    assert study.last_words(log, log.stat().st_size) == []
