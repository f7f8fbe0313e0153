"""Which name is taken for a mistyped one."""

import pytest

from spec.edits import CATALOGUE
from spec.errors import nearest
from spec.presets import PRESETS


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("tiy", "tiny"), ("tinny", "tiny"), ("toymlp", "toy-mlp"), ("mlp", "toy-mlp"), ("gpt2", "gpt2-124m")],
)
def test_a_name_of_nearly_the_same_letters_is_offered(typed: str, meant: str) -> None:
    assert nearest(typed, PRESETS) == f"did you mean {meant}?  "


@pytest.mark.parametrize("typed", ["my_piar", "nope", "x", ""])
def test_a_name_of_other_letters_is_not(typed: str) -> None:
    assert nearest(typed, PRESETS) == ""


def test_a_part_of_a_name_is_offered_with_the_rest() -> None:
    assert nearest("eps", CATALOGUE) == f"did you mean {next(name for name in CATALOGUE if 'eps' in name)}?  "
