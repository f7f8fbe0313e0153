"""Run folders: numbers go up, nothing is written over, and runs are found again."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from parity import folders
from spec.errors import RuleError


def test_folders_are_numbered_and_say_what_ran(tmp_path: Path) -> None:
    names = [folders.create(tmp_path / "runs", "tiny").name for _ in range(2)]
    assert [name[:10] for name in names] == ["0001_tiny_", "0002_tiny_"]
    assert all(re.fullmatch(r"\d{4}_tiny_(\w{10}|nogit)(-dirty)?_\d{8}T\d{6}Z", name) for name in names)


def test_numbers_go_on_after_the_highest(tmp_path: Path) -> None:
    (tmp_path / "0041_tiny_x").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "0099_a_file").write_text("")
    assert folders.create(tmp_path, "tiny").name.startswith("0042_")


def test_referees_that_start_at_once_take_different_numbers(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: folders.create(tmp_path, "tiny").name[:4], range(16)))
    assert sorted(made) == [f"{number:04d}" for number in range(1, 17)]


def test_a_run_is_found_by_path_number_and_last(tmp_path: Path) -> None:
    first, second = (folders.create(tmp_path, "tiny") for _ in range(2))
    assert folders.find(str(first), tmp_path) == first
    assert folders.find("0001", tmp_path) == folders.find("1", tmp_path) == first
    (second / folders.RESULT).write_text("{}")
    assert folders.find("last", tmp_path) == second


def test_a_run_that_did_not_come_so_far_is_not_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, killed, refused = (folders.create(tmp_path, "tiny") for _ in range(3))
    for run in (ended, killed):
        (run / "passes" / "001_torch_run").mkdir(parents=True)
    with pytest.raises(RuleError, match=r"no result\.json in any run"):
        folders.find("last", tmp_path)
    (ended / folders.RESULT).write_text("{}")
    assert folders.find("last", tmp_path) == ended
    assert (
        capsys.readouterr().err == f"last is {ended.name}: no result.json in {refused.name}, {killed.name}\n"
    )
    assert folders.find("last", tmp_path, folders.PASSES) == killed
    # Whoever names a run means that one.
    assert folders.find("3", tmp_path) == refused


@pytest.mark.parametrize("damaged", ["{", "[]", "{}", "\x00"])
def test_a_damaged_run_does_not_hide_the_runs_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: str
) -> None:
    good, bad = (folders.create(tmp_path, "tiny") for _ in range(2))
    for run in (good, bad):
        (run / folders.RESULT).write_text("{}")
        (run / folders.RUN).write_text('{"spec": {}, "backends": [], "edits": {}, "environment": {}}')
    (bad / folders.RUN).write_text(damaged)
    assert folders.find("last", tmp_path) == good
    assert capsys.readouterr().err.startswith(f"passed over {bad.name}: {bad / folders.RUN}: ")
    with pytest.raises(RuleError, match="name another run"):
        folders.read_run(folders.find("2", tmp_path))


@pytest.mark.parametrize("text", ["0007", "last", "nonsense"])
def test_a_run_that_is_not_there_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(RuleError, match="newest in"):
        folders.find(text, tmp_path / "empty")


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RuleError, match="writable"):
        folders.create(tmp_path / "file" / "runs", "tiny")
