"""What a result says of a pair's map and its proof."""

import pytest

from parity.pairs.record import notes
from spec.pairs.match import Match


@pytest.mark.parametrize(
    ("precision", "apart", "words"),
    [
        ("f64", 7e-16, ""),
        ("f64", 5e-11, ""),  # A gradient that is zero but for rounding, as that of the keys' bias.
        ("f64", 5e-8, "a layer that always computes in float32, or a small constant"),
        ("f64", 5.6e-6, "the map is proven, the models are not equal"),
        ("strict", 5.6e-6, ""),
    ],
)
def test_a_proof_that_is_no_rounding_of_float64_says_so(precision: str, apart: float, words: str) -> None:
    match = Match(
        links=(),
        tried=1,
        proven=True,
        worst_gradient="blocks.0.n2.weight",
        gradient_apart=apart,
        precision=precision,
    )
    first, *more = notes(match)
    assert "proven" in first and len(more) == bool(words)
    assert all(words in note and "blocks.0.n2.weight" in note and f"{apart:.1e}" in note for note in more)


def test_a_loss_alone_that_is_apart_is_named() -> None:
    """A constant that is added to the loss leaves every gradient as it was."""
    match = Match(
        links=(),
        tried=1,
        proven=True,
        worst_gradient="blocks.0.n2.weight",
        loss_apart=2e-4,
        gradient_apart=3e-16,
        precision="f64",
    )
    _, told = notes(match)
    assert "the models are not equal" in told and "the loss already differs by 2.0e-04" in told
    assert "gradient" not in told
