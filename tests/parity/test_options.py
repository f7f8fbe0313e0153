"""The command line says what it exposes, and exposes what it says."""

import re
import shlex

import pytest

from parity import options
from parity.cli import options as cli_options

# An option or positional stands at the left of its box: `| --time, --no-time   Also measure speed.`
SHOWN = re.compile(r"^\W (?:-h, )?((?:--[a-z-]+(?:, )?)+|[A-Z_]+ )", re.MULTILINE)


def help_text(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        options.parse([*words.split(), "--help"])
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


def test_a_typing_error_is_answered_with_the_nearest_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(shlex.split("run tiny --devics 2"))
    assert ended.value.code == 2
    assert "--devices" in capsys.readouterr().err


def test_edits_are_collected() -> None:
    command = options.parse(shlex.split("run toy-mlp --edit jax:clip_eps=1e-6 --edit torch:loss_scale=2"))
    assert isinstance(command, options.Run)
    assert command.edit == ("jax:clip_eps=1e-6", "torch:loss_scale=2")
