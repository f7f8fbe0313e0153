"""Command lines of both sides, `python -m torch_impl ...`: mistyped words are refused in three lines."""

from types import ModuleType

import pytest

from jax_impl import __main__ as jax_side
from torch_impl import __main__ as torch_side

SIDES = pytest.mark.parametrize("side", [torch_side, jax_side], ids=["torch", "jax"])


@SIDES
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tiny --stepz 3", "did you mean --steps?"),
        ("tiny --steps x", "--steps takes a whole number.\n  found: 'x'\n  mend:  such as --steps 20; "),
        ("tiny --steps", "found: nothing behind --steps"),
        ("tiny --save-every 1.5 --keep 2", "--save-every takes a whole number."),
        ("", "needs PRESET.\n  found: no PRESET"),
        ("wrok job.json", "takes PRESET alone.\n  found: 'wrok', 'job.json'"),
        ("tinny", "did you mean tiny?"),
        ("tiny --steps -1", "--steps -1"),
        (
            "tiny --device gpu",
            "The device is auto, cpu or cuda.\n  found: --device gpu\n  mend:  a GPU is",
        ),
        (
            "tests/corpus",
            "found: 'tests/corpus', a folder\n  mend:  parity run tests/corpus, or",
        ),
        ("no/such/pair", "found: 'no/such/pair', a path"),
        ("tiny --resume nowhere", "nowhere: no such folder"),
        ("tiny --resume README.md", "README.md: a file"),
        ("tiny --resume docs", "docs: none in it"),
    ],
)
def test_mistyped_words_are_refused_in_three_lines(
    side: ModuleType, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = side.main(words.split())
    stdout, stderr = capsys.readouterr()
    assert (code, stdout) == (2, "")
    assert message in stderr
    assert stderr.count("\n") == 3 and "mend:  " in stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("side", "variable", "value"),
    [
        (torch_side, "WORLD_SIZE", "x"),
        (torch_side, "WORLD_SIZE", "0"),
        (torch_side, "RANK", ""),
        (torch_side, "LOCAL_RANK", "-1"),
        (jax_side, "JAX_NUM_PROCESSES", "x"),
        (jax_side, "JAX_NUM_PROCESSES", "0"),
    ],
)
def test_what_a_launcher_tells_must_be_a_number(
    side: ModuleType,
    variable: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value)
    assert side.main(["toy-mlp", "--device", "cpu"]) == 2
    stderr = capsys.readouterr().err
    assert f"{variable} is a whole number" in stderr and f"  found: {value!r}" in stderr
    assert stderr.count("\n") == 3


@SIDES
def test_help_shows_every_option(side: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        side.main(["--help"])
    stdout, stderr = capsys.readouterr()
    assert (ended.value.code, stderr) == (0, "")
    assert f"python -m {side.__package__}" in stdout
    for name in ("--steps", "--mode", "--save-every", "--resume"):
        assert name in stdout
