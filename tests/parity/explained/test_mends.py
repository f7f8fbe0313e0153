"""What is said of how to mend a confirmed cause."""

from parity.explain.command import confirmed
from spec.edits import parse


def test_a_factor_is_mended_by_what_is_missing_on_each_side() -> None:
    """The JAX side multiplies its scores by 0.25 more: torch lacks that, and JAX has to lose it."""
    found = confirmed(parse("attention_scale=0.25"), {"attention_scale": ["1"]}, planted=None)
    assert found.mend["torch"] == "to be as jax is: multiply the scores by 0.25 more"
    assert "to be as torch is: multiply the scores by 4 more" in found.mend["jax"]
    assert found.was == ["1"]


def test_a_factor_that_was_planted_is_taken_back() -> None:
    """The torch side was made to multiply by 0.7, and is as JAX is with 1: by 1 more changes nothing."""
    found = confirmed(parse("attention_scale=1"), {"attention_scale": ["1"]}, planted=0.7)
    assert found.mend["torch"] == "to be as jax is: multiply the scores by 1.42857 more"
    assert found.mend["jax"].startswith("to be as torch is: multiply the scores by 0.7 more")
    assert found.was == ["0.7"]


def test_other_constants_are_told_as_they_are() -> None:
    found = confirmed(parse("layernorm_eps=1e-6"), {"layernorm_eps": ["1e-05"]}, planted=1e-3)
    assert found.mend["jax"].startswith("to be as torch is: nnx.LayerNorm(..., epsilon=1e-05)")
