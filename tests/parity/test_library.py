"""Arguments of the library that no parser looked at before."""

from typing import Any

import pytest

import parity
from spec.errors import RuleError


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"steps": "x"}, "steps = 'x' \\(str\\)\n  mend:  give int or None"),
        ({"steps": 2.5}, "steps = '2.5' \\(float\\)"),
        ({"devices": True}, "devices = 'True' \\(bool\\)"),
        ({"timeout_s": "1"}, "give float"),
        ({"data": 3}, "give str or None"),
        ({"edit": "jax:clip_eps=1"}, "give an iterable of strings"),
        ({"edit": 3}, "give an iterable of strings"),
        ({"edit": [3]}, "give an iterable of strings"),
        ({"time": "no"}, "give bool"),
        ({"target": 3}, "target = '3'"),
    ],
)
def test_an_argument_of_another_type_is_a_broken_rule(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(RuleError, match=words):
        parity.run(**{"target": "tiny"} | arguments)
