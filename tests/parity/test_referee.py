"""The referee from command line to folder, with stand-ins for the sides: what it prints, writes, returns."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from parity import cli
from parity.report import schema
from tests.parity.conftest import Parity, check_schema, command, environ, run_in


def last_run(folder: Path) -> Path:
    return max((folder / "runs").glob("0*"))


def read(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / "result.json").read_text())
    check_schema(content)
    return content


def test_a_run_of_equal_sides(fake_parity: Parity, tmp_path: Path) -> None:
    done = fake_parity("run tiny --steps 4")
    lines = done.stdout.splitlines()
    assert re.match(r"SAME  loss max rel 0\.0e\+00 \(tol \S+\)   speed: ", lines[0])
    folder = last_run(tmp_path)
    assert lines[-3:] == [
        f"run: {folder}",
        f"result: {folder}/result.json",
        f"report: {folder}/report.html",
    ]
    assert "\x1b" not in done.stdout + done.stderr
    content = read(last_run(tmp_path))
    assert (content["verdict"], content["exit_code"]) == ("SAME", 0)
    assert content["speed"]["ratio"]["median"] == pytest.approx(1.0)
    # A, B, B, A.
    assert [launch["passes"] for launch in content["launches"]] == [
        ["001_torch_run", "002_torch_time"],
        ["003_jax_run", "004_jax_time", "005_jax_time"],
        ["006_torch_time"],
    ]


def test_every_figure_is_measured_or_has_a_reason(fake_parity: Parity, tmp_path: Path) -> None:
    fake_parity("run tiny --steps 4 --devices 1")
    for side in ("torch", "jax"):
        speed = read(last_run(tmp_path))["speed"][side]
        missing = {name for name, value in speed.items() if value is None}
        assert missing == speed["reasons"].keys()
        assert speed["step_ms"]["n"] == 12


def test_json_alone_on_standard_output(fake_parity: Parity, tmp_path: Path) -> None:
    done = fake_parity("run tiny --steps 4 --devices 1 --json - --no-time")
    content = json.loads(done.stdout)
    check_schema(content)
    assert content == read(last_run(tmp_path))
    assert content["speed"] is None
    fake_parity("run tiny --steps 4 --devices 1 --json copy.json --no-time")
    assert json.loads((tmp_path / "copy.json").read_text()) == read(last_run(tmp_path))


def test_the_committed_schema_is_the_one_of_the_structs() -> None:
    assert schema.COMMITTED.read_text() == schema.text()


def test_a_faster_side_is_said_to_be(fake_parity: Parity) -> None:
    done = fake_parity(
        "run tiny --steps 4 --devices 1", PARITY_FAKE_TORCH="step_ms=1", PARITY_FAKE_JAX="step_ms=2"
    )
    assert "torch 2.00x faster than jax (95 % 2.00-2.00)" in done.stdout.splitlines()[0]


@pytest.mark.parametrize("edit", ["jax:schedule_offset=1", "torch:schedule_offset=1"])
def test_a_difference_is_named_on_the_first_line(fake_parity: Parity, tmp_path: Path, edit: str) -> None:
    done = fake_parity(f"run tiny --steps 4 --devices 1 --no-time --edit {edit}", code=1)
    assert done.stdout.startswith("DIFFERENT  first divergence: lr of step 0: torch ")
    assert f"planted by --edit: {edit}" in done.stdout
    assert read(last_run(tmp_path))["numerics"]["first_divergence"]["phase"] == "lr"


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("crash", "ZeroDivisionError: one by zero"),
        ("hang", "wrote nothing for the time-out"),
        ("kill", "killed, exit codes [-9]"),
        ("orphan", "left a child behind"),
    ],
)
def test_a_side_that_fails(fake_parity: Parity, tmp_path: Path, behaviour: str, words: str) -> None:
    """Exit code 6, the log on standard error, nothing left running, the other side's numbers still there."""
    token = f"token-{behaviour}-{tmp_path}"
    done = fake_parity(
        "run tiny --steps 4 --devices 1 --timeout-s 3", code=6, PARITY_FAKE_JAX=behaviour, PARITY_TOKEN=token
    )
    assert done.stdout.startswith("FAILED  jax in 003_jax_run")
    assert words in done.stderr
    content = read(last_run(tmp_path))
    assert (content["verdict"], content["exit_code"]) == ("FAILED", 6)
    assert content["curves"]["torch"]["steps"] == 4
    assert content["speed"]["torch"]["step_ms"]["n"] == 6
    assert content["speed"]["jax"] is None
    assert processes_with(f"PARITY_TOKEN={token}") == []


def test_workers_do_not_outlive_the_launcher_between(fake_parity: Parity, tmp_path: Path) -> None:
    """torchrun starts its workers in sessions of their own."""
    token = f"token-torchrun-{tmp_path}"
    words = "run tiny --steps 4 --devices 2 --backend torch --timeout-s 8"
    done = fake_parity(words, code=6, PARITY_FAKE_TORCH="hang", PARITY_TOKEN=token)
    assert done.stderr.count("| about to hang") == 2
    assert processes_with(f"PARITY_TOKEN={token}") == []


def test_a_mistake_that_a_side_reports_is_the_users(fake_parity: Parity) -> None:
    done = fake_parity("run tiny --steps 4 --devices 1", code=2, PARITY_FAKE_TORCH="usage")
    assert "token 300, vocabulary 256" in done.stderr


def test_a_rank_that_fails_ends_the_group(fake_parity: Parity) -> None:
    started = time.monotonic()
    fake_parity("run tiny --steps 4 --backend jax", code=6, PARITY_FAKE_JAX="crash")
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_referee_cleans_up_and_leaves_what_was_measured(tmp_path: Path, number: int) -> None:
    token = f"token-{number}-{tmp_path}"
    referee = subprocess.Popen(
        command("run tiny --steps 4 --devices 1"),
        cwd=tmp_path,
        env=environ(fakes=True, PARITY_FAKE_JAX="hang", PARITY_TOKEN=token),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = "runs/0001*/passes/003_jax_run/log.rank0.txt"
    deadline = time.monotonic() + 60
    while not any(path.read_text() for path in tmp_path.glob(log)) and time.monotonic() < deadline:
        time.sleep(0.05)
    referee.send_signal(number)
    stdout, _ = referee.communicate(timeout=60)
    assert referee.returncode == 6
    assert stdout.startswith("FAILED  jax in 003_jax_run was interrupted")
    assert read(last_run(tmp_path))["curves"]["torch"]["steps"] == 4
    assert processes_with(f"PARITY_TOKEN={token}") == []


def processes_with(variable: str) -> list[int]:
    """Running processes that carry the variable, this one's children or not."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_one_side_alone_has_no_verdict(fake_parity: Parity, tmp_path: Path) -> None:
    done = fake_parity("train tiny --backend jax --steps 4 --devices 1")
    assert done.stdout.startswith("train: tiny strict\n")
    assert "loss, step 3" in done.stdout
    content = read(last_run(tmp_path))
    assert (content["command"], content["verdict"], content["exit_code"]) == ("train", None, 0)


def test_a_benchmark_times_every_contender_in_order_and_in_reverse(
    fake_parity: Parity, tmp_path: Path
) -> None:
    done = fake_parity(
        "bench tiny --devices 1 --mode torch=eager,torch=inductor --baselines jax:jit,torch:ddp"
    )
    content = read(last_run(tmp_path))
    assert [launch["passes"] for launch in content["launches"]] == [
        ["001_torch_time_eager", "002_torch_time_inductor", "003_torch_time_baseline-ddp"],
        ["004_jax_time_jit", "005_jax_time_baseline-jit", "006_jax_time_baseline-jit", "007_jax_time_jit"],
        ["008_torch_time_baseline-ddp", "009_torch_time_inductor", "010_torch_time_eager"],
    ]
    rows = {(row["side"], row["mode"]): row["ratio_to_own"] for row in content["bench"]}
    assert rows["torch", "eager"] is None
    assert rows["torch", "inductor"]["median"] == pytest.approx(1.0)
    assert rows["torch", "baseline:ddp"]["median"] == pytest.approx(1.0)
    assert "torch baseline:ddp" in done.stdout


RUN = "run tiny --steps 4 --devices 1 --no-time"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of saved runs: 1 and 2 are equal, each later one is not in the way its line says."""
    folder = tmp_path_factory.mktemp("saved")
    for words, code, variables in (
        (RUN, 0, {}),
        (RUN, 0, {}),
        (f"{RUN} --edit jax:schedule_offset=1", 1, {}),
        (RUN.replace("--steps 4", "--steps 5"), 0, {}),
        (RUN, 6, {"PARITY_FAKE_JAX": "crash"}),
        (f"{RUN} --backend torch", 0, {}),
    ):
        run_in(folder, words, code, fakes=True, **variables)
    return folder


@pytest.fixture
def in_saved(saved: Path) -> Parity:
    """Run `parity WORDS` where the saved runs are."""
    return functools.partial(run_in, saved, fakes=True)


def test_saved_runs_are_compared_side_by_side(in_saved: Parity, saved: Path) -> None:
    assert in_saved("compare 0001 0002").stdout.startswith("SAME")
    content = json.loads(in_saved("compare 0001 0003 --json -", code=1).stdout)
    check_schema(content)
    assert [(pair["pair"], pair["verdict"]) for pair in content["comparisons"]] == [
        (["0001 torch", "0003 torch"], "SAME"),
        (["0001 jax", "0003 jax"], "DIFFERENT"),
    ]
    other = in_saved("compare 0001 0004", code=5)
    assert other.stdout.startswith("NOT_COMPARABLE  problem.")
    assert in_saved(f"compare {max((saved / 'runs').glob('0002*'))} last").stdout.startswith("SAME")


def test_a_saved_run_that_failed_cannot_be_judged(in_saved: Parity) -> None:
    assert "jax did not finish" in in_saved("compare 0001 0005", code=6).stdout


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    """A copy of the first saved run, for one test to damage."""
    first = next((saved / "runs").glob("0001*"))
    return shutil.copytree(first, tmp_path / "runs" / first.name)


@pytest.mark.parametrize("damaged", ["run.json", "passes/001_torch_run/job.json"])
def test_a_saved_run_with_a_cut_file_names_it(fake_parity: Parity, copied: Path, damaged: str) -> None:
    file = copied / damaged
    file.write_text(file.read_text()[:100])
    done = fake_parity("compare last last", code=2)
    assert damaged in done.stderr and "Traceback" not in done.stderr


def test_a_saved_run_with_cut_tensors_names_the_file(fake_parity: Parity, copied: Path) -> None:
    file = next(copied.glob("passes/*_torch_run/tensors/step*.safetensors"))
    file.write_bytes(file.read_bytes()[:200])
    done = fake_parity("compare last last", code=2)
    assert file.name in done.stderr and "Traceback" not in done.stderr


def test_a_crash_of_the_referee_is_not_taken_for_a_difference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(cli, "_do", crash)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert cli.main(["doctor"]) == 6
    assert "ZeroDivisionError: oh" in capsys.readouterr().err


def test_colour_is_for_terminals_that_want_it(tmp_path: Path) -> None:
    def on_a_terminal(**variables: str) -> str:
        here, there = os.openpty()
        env = {name: value for name, value in environ(fakes=True).items() if name != "NO_COLOR"}
        words = command("run tiny --steps 4 --devices 1 --no-time")
        done = subprocess.Popen(
            words,
            cwd=tmp_path,
            env=env | {"TERM": "xterm"} | variables,
            stdout=there,
            stderr=subprocess.DEVNULL,
        )
        os.close(there)
        text = b""
        while True:
            try:
                part = os.read(here, 65536)
            except OSError:
                break
            if not part:
                break
            text += part
        os.close(here)
        assert done.wait(60) == 0
        return text.decode()

    assert "\x1b[1;32mSAME" in on_a_terminal()
    assert "32m" not in on_a_terminal(NO_COLOR="1")
