"""Launches that go wrong in every way a worker can, and nothing of them left behind."""

import sys
import time
import uuid
from pathlib import Path

import pytest

from parity import launch as launching
from parity.launch import Ended, launch
from parity.processes import Command, Group
from spec import record
from spec.errors import ExitCode

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
)

IGNORE_TERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
SLEEP = "import time; time.sleep(600)"


class Stage:
    """A pass folder and commands that carry a token, so that what is left of them can be found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pass"
        self.folder.mkdir()
        self.log = folder / "launch.log"
        self.token = f"PARITY_TEST={uuid.uuid4().hex}"

    def command(self, code: str) -> Command:
        name, _, value = self.token.partition("=")
        return Command(argv=[sys.executable, "-c", code], environ={name: value})

    def run(self, *codes: str, timeout_s: float = 60.0) -> Ended:
        return launch([self.command(code) for code in codes], [self.folder], self.log, timeout_s)

    def finish(self) -> str:
        """Code that writes `done.json`."""
        return f"open({str(self.folder / 'done.json')!r}, 'w').write('{{}}');"

    def left(self) -> list[str]:
        """Command lines of the processes that still carry the token."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.token.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_text())
            except OSError:
                continue
        return found


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_launch_that_ends_well(stage: Stage) -> None:
    ended = stage.run(stage.finish())
    assert (ended.how, ended.exit_codes, ended.code) == ("done", (0,), ExitCode.SAME)
    assert (ended.error, ended.failed_pass, ended.log_tail) == (None, None, ())


def test_a_launch_that_ends_without_doing_its_job_has_crashed(stage: Stage) -> None:
    ended = stage.run("print('gave up')")
    assert (ended.how, ended.code, ended.failed_pass) == ("crashed", ExitCode.CRASHED, stage.folder)
    assert ended.log_tail == ("gave up",)


def test_a_crash_shows_the_last_lines_of_the_log(stage: Stage) -> None:
    ended = stage.run("print('before'); 1 / 0")
    assert (ended.how, ended.exit_codes, ended.code) == ("crashed", (1,), ExitCode.CRASHED)
    assert "ZeroDivisionError: division by zero" in ended.log_tail


def test_a_side_that_says_why_is_heard(stage: Stage) -> None:
    error = {"code": 2, "rule": "r", "numbers": "n", "mend": "m", "rank": 0}
    record.write_json(stage.folder / "error.json", error)
    ended = stage.run("raise SystemExit(1)")
    assert (ended.how, ended.error, ended.code) == ("error", error, ExitCode.USAGE)


def test_a_worker_killed_from_outside(stage: Stage) -> None:
    ended = stage.run("import os; os.kill(os.getpid(), 9)")
    assert (ended.how, ended.exit_codes, ended.code) == ("killed", (-9,), ExitCode.CRASHED)


def test_a_hang_is_ended_after_the_time_out(stage: Stage) -> None:
    ended = stage.run(IGNORE_TERM + SLEEP, timeout_s=1.0)
    assert (ended.how, ended.code) == ("timeout", ExitCode.CRASHED)
    assert ended.seconds < 10
    assert stage.left() == []


def test_a_worker_that_keeps_writing_is_not_ended(stage: Stage) -> None:
    slow = f"""
import time
for step in range(12):
    time.sleep(0.2)
    open({str(stage.folder / "steps.rank0.jsonl")!r}, 'a').write('x')
"""
    assert stage.run(slow + stage.finish(), timeout_s=1.5).how == "done"


def test_when_one_fails_the_others_are_ended_soon(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "_GRACE_S", 0.2)
    ended = stage.run("raise SystemExit(3)", SLEEP)
    assert (ended.how, ended.exit_codes[0]) == ("crashed", 3)
    assert ended.seconds < 10
    assert stage.left() == []


def test_an_error_file_ends_a_group_whose_processes_still_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher in between may hide that a worker has failed."""
    monkeypatch.setattr(launching, "_GRACE_S", 0.2)
    record.write_json(
        stage.folder / "error.json", {"code": 6, "rule": "", "numbers": "", "mend": "", "rank": 0}
    )
    ended = stage.run(SLEEP)
    assert (ended.how, ended.code) == ("error", ExitCode.CRASHED)
    assert ended.seconds < 10


@pytest.mark.parametrize("ending", ["1 / 0", "import time; time.sleep(600)", "pass"])
def test_a_grandchild_in_a_session_of_its_own_is_not_left_behind(stage: Stage, ending: str) -> None:
    child = IGNORE_TERM + SLEEP
    code = f"""
import subprocess, sys
subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)
print('child started', flush=True)
{ending}
"""
    stage.run(code, timeout_s=1.5)
    assert stage.log.read_text().startswith("child started")
    assert stage.left() == []


def test_ctrl_c_cleans_up_and_says_so(stage: Stage) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    ended = launch([stage.command(SLEEP)], [stage.folder], stage.log, 60.0, on_look=interrupt)
    assert (ended.how, ended.code) == ("interrupted", ExitCode.CRASHED)
    assert stage.left() == []


def test_a_group_that_cannot_be_started_whole_leaves_nothing(stage: Stage) -> None:
    with pytest.raises(FileNotFoundError):
        Group([stage.command(SLEEP), Command(argv=["/no/such/program"])], stage.log)
    assert stage.left() == []


def test_groups_do_not_end_each_other(stage: Stage) -> None:
    other = Group([stage.command(SLEEP)], stage.log)
    try:
        stage.run(stage.finish())
        time.sleep(0.1)
        assert other.poll() == [None]
    finally:
        other.end()
