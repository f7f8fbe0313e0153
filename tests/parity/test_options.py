"""The command line says what it exposes, and exposes what it says."""

import re
import shlex

import pytest

from parity import command_line, options
from parity.cli import main
from parity.cli import options as cli_options
from spec.errors import RuleError

# An option or positional stands at the left of its box: `| --time, --no-time   Also measure speed.`
SHOWN = re.compile(r"^\W (?:-h, )?((?:--[a-z-]+(?:, )?)+|[A-Z_]+ )", re.MULTILINE)


def help_text(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        command_line.parse([*words.split(), "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", options.COMMANDS)
def test_every_option_that_help_shows_is_listed_and_the_other_way_round(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = {
        name for names in SHOWN.findall(help_text(words, capsys)) for name in re.split("[, ]+", names) if name
    }
    listed = {entry.removeprefix(f"{words} ") for entry in cli_options() if entry.startswith(f"{words} ")}
    assert shown - {"--help"} == listed


def test_every_subcommand_of_the_parser_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    usage = re.search(r"\{(.*?)\}", help_text("", capsys))
    assert usage
    assert set(usage.group(1).split(",")) == {words.split()[0] for words in options.COMMANDS}


def test_a_typing_error_is_answered_with_the_nearest_option() -> None:
    with pytest.raises(RuleError, match="did you mean --devices\\?"):
        command_line.parse(shlex.split("run tiny --devics 2"))


@pytest.mark.parametrize(
    ("typed", "rule", "found"),
    [
        ("bench --calls x", "--calls takes a whole number.", "'x'"),
        ("run --devices=x", "--devices takes a whole number.", "'x'"),
        ("run --steps 1.5", "--steps takes a whole number.", "'1.5'"),
        ("run --global_batch 2e3", "--global-batch takes a whole number.", "'2e3'"),
        ("explain --timeout-s soon", "--timeout-s takes a number.", "'soon'"),
        ("run --steps", "--steps takes a whole number.", "nothing behind --steps"),
        ("run --json --no-time", "--json takes a value.", "nothing behind --json"),
        ("run --stepz 3", "parity run takes the options that its help lists.", "--stepz"),
        ("run -q", "parity run takes the options that its help lists.", "-q"),
        ("run tiny --no-trace=1", "--no-trace is a switch and takes no value.", "--no-trace=1"),
        ("run tiny mini", "Of words without dashes parity run takes PRESET alone.", "'tiny', 'mini'"),
        ("doctor now", "Of words without dashes parity doctor takes nothing.", "'now'"),
        ("train tiny", "parity train needs --backend.", "'tiny', but no --backend"),
        ("compare last", "parity compare needs RUN_A and RUN_B.", "'last', but no RUN_B"),
        ("data prepare", "parity data prepare needs TEXT and --out.", "no TEXT and no --out"),
        ("", "A command follows parity.", "nothing"),
        ("rnu tiny", "A command follows parity.", "'rnu'"),
        ("data split", "A command follows parity data.", "'split'"),
    ],
)
def test_what_cannot_be_parsed_is_told_by_the_rule_the_value_and_the_mend(
    typed: str, rule: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(typed)) == 2
    said = capsys.readouterr()
    assert not said.out
    lines = said.err.splitlines()
    assert lines[:2] == [rule, f"  found: {found}"]
    assert len(lines) == 3 and lines[2].startswith("  mend:  ")


def test_what_the_parser_refuses_for_a_reason_of_its_own_is_told_in_its_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "_complaint", lambda arguments: None)
    with pytest.raises(SystemExit, match="2"):
        command_line.parse(["run", "--steps", "x"])
    assert "--steps" in capsys.readouterr().err


def test_edits_are_collected() -> None:
    command = command_line.parse(
        shlex.split("run toy-mlp --edit jax:clip_eps=1e-6 --edit torch:loss_scale=2")
    )
    assert isinstance(command, options.Run)
    assert command.edit == ("jax:clip_eps=1e-6", "torch:loss_scale=2")
