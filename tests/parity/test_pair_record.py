"""What a result says of a pair's map and its proof."""

from types import SimpleNamespace
from typing import Any

import pytest

from parity.pairs.record import doubt, notes, pair_record
from parity.pairs.settle import Settled
from parity.training import verdict
from spec.errors import ExitCode
from spec.pairs.match import NOT_FINITE, Match


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


def unproven(**changes: Any) -> Match:
    content: dict[str, Any] = {
        "tried": 200,
        "settled": ("partners of cell.i.r.bias, cell.r.n.bias",),
        "loss_apart": 0.1,
        "worst_gradient": "cell.i.r.bias",
        "gradient_apart": 1.5,
        "precision": "f64",
    }
    return Match(links=(), **(content | changes))


def test_a_search_that_was_cut_off_says_so_and_how_to_name_links() -> None:
    match = unproven(untried=3256)
    first, second = notes(match)
    assert first == doubt(match) and second.startswith("map: not proven, no candidate of 200")
    for words in ("limit of 200 candidates", "3256 more were not tried", "cell.r.n.bias", "map=(("):
        assert words in first
    assert "settled by gradients" not in first + second


def test_what_is_not_proven_is_not_settled() -> None:
    (only,) = notes(unproven())
    assert only.startswith("map: not proven") and doubt(unproven()) == ""
    assert [note for note in notes(unproven(proven=True)) if note.startswith("map: settled by gradients")]
    assert doubt(unproven(proven=True)) == ""


def test_a_first_batch_without_a_finite_loss_is_named_and_no_sentinel() -> None:
    match = unproven(
        tried=1, settled=(), not_finite=("the loss in torch", "the loss in jax"), gradient_apart=NOT_FINITE
    )
    (only,) = notes(match)
    assert "in the first batch, before training, the loss in torch and the loss in jax is NaN" in only
    assert "e+300" not in only and "no candidate" not in only
    record = pair_record("a", "torch", match)
    assert record.gradient_rel is None and record.reasons.keys() == {"gradient_rel"}
    (only,) = notes(unproven(gradient_apart=NOT_FINITE))
    assert "gradient of cell.i.r.bias not finite" in only


def test_a_difference_under_a_map_that_is_in_doubt_is_inconclusive() -> None:
    numerics: Any = SimpleNamespace(verdict="DIFFERENT")
    plan: Any = SimpleNamespace()
    for match, found in ((unproven(untried=9), "INCONCLUSIVE"), (unproven(), "DIFFERENT")):
        assert verdict(ExitCode.SAME, numerics, Settled(plan=plan, match=match))[1] == found
    numerics.verdict = "SAME"
    settled = Settled(plan=plan, match=unproven(untried=9))
    assert verdict(ExitCode.SAME, numerics, settled) == (ExitCode.SAME, "SAME")


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
